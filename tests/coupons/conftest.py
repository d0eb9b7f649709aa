import pytest

from tests.coupons.factories import Shop, make_shop


@pytest.fixture
def shop(transactional_db, now) -> Shop:
    """Committed rows: commands open durable transactions and leave evidence after a rollback."""
    return make_shop(now)
