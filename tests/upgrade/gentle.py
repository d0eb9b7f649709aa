"""Whether a migration's SQL lets traffic through: what PostgreSQL does under an exclusive lock for as long as a table
is large, or what breaks the release that still runs beside it (docs/upgrades.md says what to write instead)."""

from __future__ import annotations

import re

ROUGH = (
    ("index built under a lock: CONCURRENTLY", r"CREATE (UNIQUE )?INDEX (?!CONCURRENTLY)(IF NOT EXISTS )?\S+ ON {t}"),
    (
        "table scanned under a lock: NOT VALID, validated later",
        r"{a} ADD CONSTRAINT \S+ (CHECK|FOREIGN)(?!.*NOT VALID)",
    ),
    ("index built under a lock: USING INDEX", r"{a} ADD CONSTRAINT \S+ (UNIQUE|PRIMARY|EXCLUDE)(?!.*USING INDEX)"),
    ("table rewritten: a new column, filled in steps", r"{a} ALTER (COLUMN )?\S+ (SET DATA )?TYPE"),
    ("table scanned under a lock: a validated check first", r"{a} ALTER (COLUMN )?\S+ SET NOT NULL"),
    ("the running release uses it: drop it in the next", r"{a} DROP (COLUMN )?(?!CONSTRAINT)\S+"),
    ("the running release uses it: drop it in the next", r"DROP TABLE (IF EXISTS )?{t}"),
    ("the running release knows the old name", r"{a} RENAME"),
    ("all rows at once: fill them in steps", r"^\s*UPDATE {t}\b(?!.*LIMIT)"),
)
TABLE = r'"?(?P<table>\w+)"?'


def rough(sql: str, *, existing: set[str]) -> list[str]:
    """What in a migration's statements is rough on tables that are there already, with the statement."""
    found = []
    for statement in statements(sql):
        for why, pattern in ROUGH:
            whole = pattern.replace("{a}", "ALTER TABLE (IF EXISTS )?(ONLY )?{t}").replace("{t}", TABLE)
            matched = re.search(whole, statement, re.I | re.S)
            if matched and matched["table"] in existing:
                found.append(f"{why}: {statement[:160]}")
    return found


def statements(sql: str) -> list[str]:
    """Statements of sqlmigrate's output, comments dropped. Bodies of functions are no statements of their own."""
    plain = "\n".join(line for line in sql.splitlines() if not line.lstrip().startswith("--"))
    parts, inside = [""], False
    for piece in re.split(r"(\$\w*\$|;)", plain):
        if re.fullmatch(r"\$\w*\$", piece):
            inside = not inside
        if piece == ";" and not inside:
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts if part.strip()]
