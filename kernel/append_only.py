"""Tables that only grow: UPDATE, DELETE and TRUNCATE are refused by the database itself."""

import pgtrigger


def append_only(*, may_change: list[str] | None = None) -> list[pgtrigger.Trigger]:
    """Triggers for a model's Meta.triggers. `may_change` names the columns that may still change, if any;
    what may be written into them is then the business of another trigger or CHECK."""
    protect_update: pgtrigger.Trigger
    if may_change:
        protect_update = pgtrigger.ReadOnly(name="append_only_update", exclude=may_change)
    else:
        protect_update = pgtrigger.Protect(name="append_only_update", operation=pgtrigger.Update)
    return [
        protect_update,
        pgtrigger.Protect(name="append_only_delete", operation=pgtrigger.Delete),
        pgtrigger.Trigger(
            name="append_only_truncate",
            level=pgtrigger.Statement,
            when=pgtrigger.Before,
            operation=pgtrigger.Truncate,
            func="RAISE EXCEPTION 'pgtrigger: Cannot truncate table %', TG_TABLE_NAME;",
        ),
    ]
