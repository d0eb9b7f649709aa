"""Django's migrate, and afterwards: only the tables' owner may switch a trigger off.

django-pgtrigger's functions step aside for triggers named in the session's `pgtrigger.ignore`, and every session may
set that. The guards of this product have to stand against the application's own role too, so the question "ignore
this trigger?" is answered with no for anybody but the owner. Each trigger's migration brings pgtrigger's own version
of that function back, hence here, after the last one.
"""

from typing import Any

from django.core.management.commands import migrate
from django.db import connections

GUARDED = """
CREATE OR REPLACE FUNCTION public._pgtrigger_should_ignore(trigger_name NAME) RETURNS BOOLEAN AS $$
    SELECT coalesce(trigger_name = ANY (nullif(current_setting('pgtrigger.ignore', true), '')::text[]), false)
       AND pg_has_role(
           current_user,
           (SELECT proowner FROM pg_proc WHERE oid = 'public._pgtrigger_should_ignore(name)'::regprocedure),
           'MEMBER')
$$ LANGUAGE sql STABLE
"""


class Command(migrate.Command):
    """`migrate`, with the switch of the database's guards kept in the owner's hands."""

    def handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
        with connections[options["database"]].cursor() as cursor:
            cursor.execute("SELECT to_regprocedure('public._pgtrigger_should_ignore(name)') IS NOT NULL")
            if cursor.fetchone()[0]:
                cursor.execute(GUARDED)
