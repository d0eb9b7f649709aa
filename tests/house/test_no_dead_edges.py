"""A machine's edge that no command takes is a promise that nobody keeps."""

from pathlib import Path

import pytest
from django.apps import apps

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = "\n".join(path.read_text() for path in sorted(ROOT.glob("*/commands/*.py")))
EDGES = sorted(
    {
        (model.__name__, name)
        for model in apps.get_models()
        if not model.__module__.startswith("tests.")
        for name in dir(model)
        if hasattr(getattr(model, name, None), "_django_fsm")
    }
)
# Edges of a row that another row's statement moves along (`Touch`), or a set-based one: where that stands.
TAKEN_BESIDE = {
    ("Payment", "use_refund_number"): ("payments/commands/retry_refund.py", "s.refund_count + 1"),
    ("Payment", "record_refunded"): ("payments/commands/record_refund_fact.py", "s.refunded_fen + u.amount_fen"),
    ("Payment", "release_refund"): ("payments/commands/abandon_refund.py", "s.refund_committed_fen - u.amount_fen"),
    ("RefundAttempt", "resume"): ("payments/commands/retry_refund.py", '"status": Status.CREATED'),
    ("Finding", "reopen"): ("reconciliation/commands/record_findings.py", "WHEN b.reopens THEN 'OPEN'"),
}


def test_there_are_machines() -> None:
    assert len(EDGES) > 60


@pytest.mark.parametrize(("model", "edge"), EDGES)
def test_some_command_takes_it(model: str, edge: str) -> None:
    path, words = TAKEN_BESIDE.get((model, edge), ("", ""))
    assert (words in (ROOT / path).read_text()) if path else f'"{edge}"' in COMMANDS, f"{model}.{edge}"
