from collections.abc import Iterator

import pytest

from tests.admin.conftest import (  # noqa: F401  (the browser's fixtures)
    browser_context_args,
    browser_type_launch_args,
    console,
    log_in,
    shot,
)
from tests.coupons.factories import Shop, make_shop
from tests.coupons.invariants import assert_invariants


@pytest.fixture
def shop(transactional_db, now) -> Iterator[Shop]:
    """Committed rows: commands open durable transactions and leave evidence after a rollback. Whatever a test did
    through commands, the invariants hold at its end."""
    yield make_shop(now)
    assert_invariants()
