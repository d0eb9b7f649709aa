"""What bin/house stands on: ports, keys, marks, and no package but the standard library."""

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from house import environment, gate, keys, layout, plan, ports, postgres, processes, testbed, up

BIN = layout.PROJECT / "bin"


def test_the_programs_need_nothing_but_the_standard_library():
    foreign = set()
    for path in [*BIN.glob("house/*.py"), BIN / "up", BIN / "down", BIN / "test", BIN / "manage"]:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            foreign |= {f"{path.name}: {name}" for name in names if name.split(".")[0] not in ALLOWED}
    assert foreign == set()


ALLOWED = {*sys.stdlib_module_names, "house"}


def test_keys_are_made_once_and_for_the_owner_only(tmp_path):
    first = keys.keys_of(tmp_path)
    assert keys.keys_of(tmp_path) == first
    assert (tmp_path / "secrets.json").stat().st_mode & 0o777 == 0o600
    assert len({*vars(first).values()}) == len(vars(first))


def test_a_key_that_came_later_is_added_and_the_others_stay(tmp_path):
    first = keys.keys_of(tmp_path)
    kept = json.loads((tmp_path / "secrets.json").read_text())
    del kept["valkey_password"]
    (tmp_path / "secrets.json").write_text(json.dumps(kept))
    second = keys.keys_of(tmp_path)
    assert second.valkey_password
    assert (second.secret_key, second.house_id) == (first.secret_key, first.house_id)


def test_a_port_in_use_is_not_picked():
    with socket.socket() as busy:
        busy.bind((ports.LOOPBACK, 0))
        busy.listen()
        port = busy.getsockname()[1]
        assert not ports.is_free(port)
        assert ports.pick(port) != port
    assert ports.pick(port) == port


def test_ports_of_the_last_time_are_taken_again(tmp_path, capsys):
    first = up._choose_ports(tmp_path, ports.pick())
    (tmp_path / "run.json").write_text(json.dumps({"ports": first}))
    assert up._choose_ports(tmp_path, None) == first
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind((ports.LOOPBACK, first["web"]))
        busy.listen()
        second = up._choose_ports(tmp_path, None)
    assert second["web"] != first["web"]
    assert f"port {first['web']} is in use: taking {second['web']}" in capsys.readouterr().out


def _sleeper(mark: str, log: Path) -> subprocess.Popen:
    return processes.spawn(["sleep", "60"], mark=mark, log=log, environment=dict(os.environ), cwd=Path("/"))


def test_a_sweep_ends_this_house_and_no_other(tmp_path):
    ours, servers, others = (
        _sleeper("house-a:web", tmp_path / "log"),
        _sleeper("house-a:postgres", tmp_path / "log"),
        _sleeper("house-b:web", tmp_path / "log"),
    )
    try:
        assert processes.sweep("house-a") == ["postgres", "web"]
        assert ours.wait(5) == -signal.SIGTERM
        assert servers.wait(5) == -signal.SIGINT
        assert others.poll() is None
    finally:
        for process in (ours, servers, others):
            processes.stop(process, by=signal.SIGKILL, patience=5)


def test_a_part_hears_sigint_though_the_house_was_started_in_the_background(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        part = _sleeper("house-a:postgres", tmp_path / "log")
    finally:
        signal.signal(signal.SIGINT, before)
    part.send_signal(signal.SIGINT)
    assert part.wait(30) == -signal.SIGINT


def test_children_end_with_their_keeper_even_when_it_is_killed(tmp_path):
    program = (
        "import sys, time, os; sys.path.insert(0, sys.argv[1]); from pathlib import Path; from house import processes\n"
        "child = processes.spawn(['sleep', '60'], mark='t:t', log=Path(sys.argv[2]), environment=dict(os.environ),"
        " cwd=Path('/'))\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    keeper = subprocess.Popen(
        [sys.executable, "-c", program, str(BIN), str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    child = int(keeper.stdout.readline())
    pidfd = os.pidfd_open(child)
    try:
        keeper.kill()
        keeper.wait()
        assert processes.pidfd_ended(pidfd, 5)
    finally:
        os.close(pidfd)
        keeper.stdout.close()


@pytest.mark.parametrize(
    "content",
    ["", "nonsense\n", f"{os.getpid()}\n/somewhere\n", "999999999\n"],
    ids=["empty", "nonsense", "another process", "nobody"],
)
def test_a_pid_file_that_names_somebody_else_is_stale(tmp_path, content):
    cluster = postgres.Cluster(data=tmp_path, user=None, programs=tmp_path)
    (tmp_path / "postmaster.pid").write_text(content)
    postgres._forget_stale_pid(cluster)
    assert not (tmp_path / "postmaster.pid").exists()


def test_a_pid_file_of_a_living_server_stays(tmp_path):
    cluster = postgres.Cluster(data=tmp_path, user=None, programs=tmp_path)
    server = subprocess.Popen(["sleep", "60"], cwd=tmp_path)
    try:
        (tmp_path / "postmaster.pid").write_text(f"{server.pid}\n")
        postgres._forget_stale_pid(cluster)
        assert (tmp_path / "postmaster.pid").exists()
    finally:
        server.kill()
        server.wait()


def test_the_environment_from_outside_wins(tmp_path, monkeypatch):
    house_keys, numbers = keys.keys_of(tmp_path), dict.fromkeys(plan.PORT_NAMES, 1234)
    for name in ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "QUITS_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    own = plan.environment(var=tmp_path, keys=house_keys, numbers=numbers)
    assert own["DATABASE_URL"].startswith("postgresql://quits_app:")
    assert own["DATABASE_OWNER_URL"].startswith("postgresql://quits_owner:")
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/quits")
    monkeypatch.setenv("QUITS_BASE_URL", "https://quits.example")
    given = plan.environment(var=tmp_path, keys=house_keys, numbers=numbers)
    assert given["DATABASE_URL"] == given["DATABASE_OWNER_URL"] == "postgresql://elsewhere/quits"
    assert given["QUITS_BASE_URL"] == "https://quits.example"


def test_a_missing_venv_module_is_answered_with_the_line_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(layout.Trouble, match=r"lacks the module venv.*\n\n +.*(install|add|ensurepip)"):
        environment._create(print)
    assert not (tmp_path / ".venv").exists()


def test_a_gate_step_that_fails_is_named_and_its_output_shown(monkeypatch, capsys):
    good = gate.Step("good", [sys.executable, "-c", "print('quiet')"])
    bad = gate.Step("bad", [sys.executable, "-c", "print('the reason'); raise SystemExit(3)"])
    monkeypatch.setattr(gate, "steps", lambda: [good, bad])
    assert gate._run_steps(dict(os.environ)) == ["bad"]
    said = capsys.readouterr().out
    assert "ok    good" in said
    assert "FAIL  bad" in said
    assert "the reason" in said
    assert "quiet" not in said


def test_a_named_chromium_that_cannot_be_run_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("QUITS_CHROMIUM", str(tmp_path / "chromium"))
    with pytest.raises(layout.Trouble, match="cannot be run"):
        gate.require_chromium()


def test_without_chromium_and_without_root_the_gate_fails_with_the_line(monkeypatch):
    monkeypatch.delenv("QUITS_CHROMIUM", raising=False)
    monkeypatch.setattr(gate.shutil, "which", lambda name: None)
    with pytest.raises(layout.Trouble, match="apt-get install -y --no-install-recommends chromium"):
        gate.require_chromium()


def test_an_atomic_write_leaves_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "file"
    layout.write_atomically(path, "old")
    layout.write_atomically(path, "new")
    assert path.read_text() == "new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_time_passes_for_processes():
    """pidfd_ended waits no longer than asked."""
    sleeping = subprocess.Popen(["sleep", "5"])
    pidfd = os.pidfd_open(sleeping.pid)
    began = time.monotonic()
    assert not processes.pidfd_ended(pidfd, 0.2)
    assert time.monotonic() - began < 2
    os.close(pidfd)
    sleeping.kill()
    sleeping.wait()


@pytest.mark.slow
def test_a_testbed_is_warm_until_it_is_stopped(tmp_path):
    bed = tmp_path / "a bed"
    try:
        with testbed.borrowed(bed) as (first, bed_keys):
            assert first.answers(bed_keys)
        with testbed.borrowed(bed) as (second, _):
            assert second == first
        os.kill(first.keeper, signal.SIGKILL)  # its servers go with it
        with testbed.borrowed(bed) as (third, _):
            assert third.keeper != first.keeper
            assert third.answers(bed_keys)
        assert testbed.stop(bed)
        assert not testbed.stop(bed)
        assert not third.answers(bed_keys)
    finally:
        testbed.stop(bed)
        testbed.remove(bed)


def test_only_data_of_vanished_temporary_houses_is_tidied_away(tmp_path, monkeypatch):
    monkeypatch.setattr(postgres, "ELSEWHERE", tmp_path / "elsewhere")
    monkeypatch.setattr(postgres.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    links = {
        "gone": tmp_path / "tmp" / "gone" / "postgres",
        "there": tmp_path / "tmp" / "there" / "postgres",
        "not temporary": tmp_path / "home" / "postgres",
    }
    for name, link in links.items():
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
        (tmp_path / "elsewhere" / name / "belongs-to").write_text(str(link))
    (tmp_path / "elsewhere" / "unknown").mkdir()
    links["there"].parent.mkdir(parents=True)
    links["there"].symlink_to(tmp_path / "elsewhere" / "there")
    postgres._tidy()
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {"there", "not temporary", "unknown"}
