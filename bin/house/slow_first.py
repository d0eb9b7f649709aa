"""A pytest plugin of the gate: files with slow tests go first, so that no worker is left alone with one at the end."""

from typing import Any


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Stable, and the same in every xdist worker."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
