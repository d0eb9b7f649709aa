"""What a deployment is made of fits what the product is: compose.yaml, the image, alarms and their pages, settings."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.test import Client

from config.schedule import BEAT_SCHEDULE
from tests.orders.test_stream import refused

ROOT = Path(__file__).resolve().parents[2]
ALERTS = [
    rule for group in yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"] for rule in group["rules"]
]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
OURS = {"migrate", "web", "stream", "worker-critical", "worker", "worker-bulk", "beat"}


def words(service: str) -> list[str]:
    return COMPOSE["services"][service]["command"]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_every_alarm_has_its_page(alert: dict[str, Any]) -> None:
    text = (ROOT / alert["annotations"]["runbook"]).read_text("utf-8")
    assert text.startswith(f"# {alert['alert']}\n")
    assert all(f"## {part}" in text for part in ("You notice", "Look", "Do"))
    assert alert["annotations"]["runbook"].rpartition("/")[2] in (ROOT / "docs/runbook/README.md").read_text("utf-8")


def test_no_page_without_its_alarm_or_job() -> None:
    pages = {path.stem for path in (ROOT / "docs/runbook").rglob("*.md")} - {"README"}
    jobs = {task.rpartition(".")[2] for task in BEAT_SCHEDULE}
    assert pages == jobs | {Path(alert["annotations"]["runbook"]).stem for alert in ALERTS}


@pytest.mark.django_db
def test_every_alarm_reads_metrics_that_we_have(client: Client) -> None:
    client.get("/healthz")
    exposed = client.get("/metrics").content.decode()
    for alert in ALERTS:
        for metric in set(re.findall(r"\b(?:quits|django)_\w+", alert["expr"])):
            if metric.startswith("quits_reconciliation"):
                continue  # only there after the first daily run: tests/reconciliation/test_alarms_and_gates.py
            assert re.search(rf"^{metric}(\{{| )", exposed, re.M), f"{alert['alert']} reads {metric}"


def test_our_services_are_hardened_and_wait_for_the_migration() -> None:
    assert OURS | {"postgres", "valkey"} == set(COMPOSE["services"])
    for name in OURS:
        service = COMPOSE["services"][name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["environment"]["QUITS_ENV"] == "production"
        assert ("DATABASE_OWNER_URL" in service["environment"]) == (name == "migrate"), "only migrate owns the tables"
        if name != "migrate":
            assert service["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    for name in ("web", "stream", "worker-critical", "worker", "worker-bulk", "postgres", "valkey"):
        assert COMPOSE["services"][name]["healthcheck"]["test"]
    image = (ROOT / "Dockerfile").read_text()
    assert image.index("\nUSER quits\n") < image.index("\nCMD ")
    assert "--require-hashes" in image and "HEALTHCHECK" in image


def test_what_the_health_checks_ask_for_is_there(client: Client, transactional_db: None) -> None:
    """The web by WSGI, the stream by its own application: its check asked for a page that it did not have."""
    asked = {name: COMPOSE["services"][name]["healthcheck"]["test"] for name in ("web", "stream")}
    assert asked["web"][1:4] == ["python", "deploy/healthy.py", "/readyz"]
    assert client.get("/readyz").status_code == 200
    assert asked["stream"][1:] == ["python", "deploy/healthy.py", "/healthz", "8001"]
    answer = refused("", path=asked["stream"][3])
    assert (answer.status, json.loads(answer.text)) == (200, {"status": "ok"})


def test_the_commands_are_those_that_bin_up_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """bin/up's command lines are started by tests/platform; these differ from them in host, port and numbers only."""
    monkeypatch.syspath_prepend(str(ROOT / "bin"))
    from house import plan
    from house.keys import Keys

    numbers = dict.fromkeys(plan.PORT_NAMES, 1)
    started = {part.name: part.argv() for part in plan._applications(tmp_path, Keys(**_keys(Keys)), numbers)}
    for name in ("web", "stream"):
        assert _plain(words(name)[3:]) == _plain(started[name][started[name].index("--host") :])
    for name in ("worker-critical", "worker", "worker-bulk"):
        assert _plain(words(name)[1:]) == _plain(started["worker"][1:])
    assert _plain(words("beat")[1:]) == _plain(started["beat"][1:])
    queues = {
        queue for name in OURS if "-Q" in words(name) for queue in words(name)[words(name).index("-Q") + 1].split(",")
    }
    assert queues == {"critical", "default", "bulk"}
    assert words("migrate")[1:3] == ["manage.py", "migrate"]


def _keys(kind: Any) -> dict[str, str]:
    return dict.fromkeys(kind.__dataclass_fields__, "x")


def _plain(command: list[str]) -> list[str]:
    """Without what may differ: the value after each option that names a host, a port, a number, a file."""
    free = {"--host", "--port", "--workers", "-Q", "--concurrency", "--schedule"}
    return [word for before, word in zip(["", *command], command, strict=False) if before not in free]


def test_every_variable_is_explained() -> None:
    read = set(re.findall(r'"((?:QUITS|DATABASE|REDIS)_\w+)"', (ROOT / "config" / "settings.py").read_text()))
    constants = {"DATABASE_OWNER_URL"} | {
        name for name in read if name in os.environ or name.endswith(("_URL", "KEYS"))
    }
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    assert {name for name in read | constants if f"`{name}`" not in page} == set()
    needed = set(re.findall(r"\$\{(\w+):\?\}", (ROOT / "compose.yaml").read_text()))
    example = (ROOT / "deploy" / "example.env").read_text()
    assert {name for name in needed if f"{name}=" not in example} == set()


def test_the_health_check_says_what_it_found(live_server, settings) -> None:
    port = live_server.url.rpartition(":")[2]

    def ask(path: str, port: str) -> int:
        return subprocess.run(
            [sys.executable, str(ROOT / "deploy" / "healthy.py"), path, port],
            env={**os.environ, "QUITS_ALLOWED_HOSTS": "localhost,other.example"},
            check=False,
        ).returncode

    assert ask("/healthz", port) == 0
    assert ask("/nowhere", port) == 1
    assert ask("/healthz", "9") == 1
