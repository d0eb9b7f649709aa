from collections.abc import Iterator

import pytest

from tests.coupons.factories import Shop, make_shop
from tests.coupons.invariants import assert_invariants


@pytest.fixture
def shop(transactional_db, now) -> Iterator[Shop]:
    """Committed rows: commands open durable transactions and leave evidence after a rollback. Whatever a test did
    through commands, the invariants hold at its end."""
    yield make_shop(now)
    assert_invariants()
