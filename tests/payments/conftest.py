import pytest

from tests.payments.factories import Shop, a_shop


@pytest.fixture
def shop(transactional_db, now) -> Shop:
    """Committed rows: commands open durable transactions of their own."""
    return a_shop(now)
