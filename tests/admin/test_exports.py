"""Exports and pages say words and yuan, not what Python makes of them and not fen."""

import pytest

from kernel.admin import site
from kernel.admin.export import cell
from tests.admin.rows import Parents, a_row, anything_goes
from tests.merchants.factories import a_merchant

EXPORTS = [model for model, page in site._registry.items() if getattr(page, "export_columns", None)]


@pytest.mark.django_db
@pytest.mark.parametrize("model", EXPORTS, ids=lambda model: model._meta.label)
def test_every_column_holds_a_value(model, now) -> None:
    with anything_goes():
        rows: Parents = {}
        row = a_row(model, a_merchant(now=now), now, rows)
        for label, source in site._registry[model].export_columns:
            said = cell(row, source, "plain")
            assert not any(sign in said for sign in ("functools", "<bound", "object at", "<function")), (label, said)
            assert "(fen)" not in str(label)
            if isinstance(source, str) and not source.startswith("get_"):
                continue
            assert callable(source), f"{label}: a column is a field or a function, {source} is neither"


def test_no_page_shows_a_column_of_fen_as_it_is() -> None:
    raw = [
        f"{model._meta.label}.{name}"
        for model, page in site._registry.items()
        if "get_fieldsets" not in vars(type(page))  # the others have a template of their own
        for name in page.get_fields(None)
        if isinstance(name, str) and name.endswith("_fen")
    ]
    assert raw == []
