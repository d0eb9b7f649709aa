"""Each state of findings and runs in a line."""

from django.utils.translation import gettext_lazy as _

from kernel.admin import Legend
from reconciliation.models import Finding, ReconciliationRun

SEVERITY_TONES = {"P0": "danger", "P1": "warning", "P2": "info", "P3": "neutral"}
STATE_TONES = {
    "OPEN": "danger",
    "ASSIGNED": "info",
    "REPAIR_REQUESTED": "warning",
    "REPAIRED": "info",
    "RESOLVED": "success",
    "ACCEPTED": "neutral",
}
RUN_TONES = {"DONE": "success", "WAITING": "warning", "FAILED": "danger", "RUNNING": "info"}
FINDINGS = [
    Legend(
        "state",
        {
            Finding.State.OPEN: _("Nobody looks into it yet."),
            Finding.State.ASSIGNED: _("Somebody looks into it."),
            Finding.State.REPAIR_REQUESTED: _("A P0 repair waits for another person to confirm it, or to refuse it."),
            Finding.State.REPAIRED: _("The repair ran. The next look tells whether it helped."),
            Finding.State.RESOLVED: _("A later look no longer sees it. It opens again if it comes back."),
            Finding.State.ACCEPTED: _("Accepted with a reason. It stays quiet as long as its figures stay the same."),
        },
        STATE_TONES,
    ),
    Legend(
        "severity",
        {
            "P0": _("Today, before anything else. No release goes out before it is ended."),
            "P1": _("Today. Most have a repair. No release goes out before it is ended."),
            "P2": _("This week."),
            "P3": _("No hurry."),
        },
        SEVERITY_TONES,
    ),
]
RUNS = [
    Legend(
        "state",
        {
            ReconciliationRun.State.RUNNING: _("Under way; reload in a moment."),
            ReconciliationRun.State.WAITING: _("A bill is not there yet. The run is finished by itself when it comes."),
            ReconciliationRun.State.DONE: _("Every account of the day was judged."),
            ReconciliationRun.State.FAILED: _("The run stopped. Its error stands on its page; it is tried again."),
        },
        RUN_TONES,
    )
]
