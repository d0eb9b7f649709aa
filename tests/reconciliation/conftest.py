import pytest

from tests.reconciliation.books import Books


@pytest.fixture
def books(transactional_db) -> Books:
    """A shop with nothing sold yet."""
    return Books.open()
