import pytest

from merchants.models import Merchant
from tests.merchants.factories import a_merchant


@pytest.fixture
def merchant(transactional_db, now) -> Merchant:
    """Committed rows: what is raced is raced on real connections."""
    return a_merchant(now=now)
