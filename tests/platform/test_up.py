"""bin/up, bin/down and bin/manage on the whole product: ready, killed in every part, ended, started again."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from house import plan

from tests.house_in_a_box import ROOT, House

pytestmark = pytest.mark.slow

PARTS = ["web", "stream", "worker", "beat", "simulator", "valkey", "postgres"]
ORDERS = "Order.objects.count()"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory):
    mine = House(var=tmp_path_factory.mktemp("a house with spaces"))
    yield mine
    mine.stop()
    assert mine.processes() == {}
    assert not (mine.var / "postgres").exists()


@pytest.fixture
def running(house: House) -> House:
    """The house up and ready; nothing happens when it is."""
    house.start()
    return house


@pytest.fixture
def stopped(house: House) -> House:
    """The house down, with the data of an earlier start."""
    if not (house.var / "demo.json").exists():
        house.start()
    house.rest()
    return house


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _eventually(holds, what: str, within: float = 90.0) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"not in {within:.0f} s: {what}"
        time.sleep(0.1)


def _is_ready(house: House) -> bool:
    return _status(f"{house.record['base_url']}/readyz") == 200


def test_everything_answers(running: House) -> None:
    record = running.record
    assert record["state"] == "ready"
    assert set(record["processes"]) == set(PARTS)
    assert set(running.processes()) == set(PARTS)
    assert _is_ready(running)
    assert _status(f"{record['base_url']}/admin/login/") == 200
    for part in ("stream", "simulator"):
        assert 0 < _status(f"{plan.address(record['ports'][part])}/healthz") < 500
    assert running.demo["base_url"] == record["base_url"]
    assert running.demo["simulator"]["base_url"] == plan.address(record["ports"]["simulator"])
    assert (running.var / "demo.json").stat().st_mode & 0o077 == 0


def test_the_running_product_may_change_rows_and_nothing_else(running: House) -> None:
    """The application logs in as a role that owns no table, cannot make one and cannot empty one."""
    run = "__import__('django.db').db.connection.cursor().execute"
    assert running.ask(f"{run}('SELECT current_user').fetchone()") == ["quits_app"]
    for attempt in ("CREATE TABLE mine ()", "TRUNCATE coupon_operation", "DROP TABLE orders"):
        refused = running.manage("shell", "-c", f"{run}('{attempt}')", check=False)
        assert refused.returncode != 0
        assert "InsufficientPrivilege" in refused.stderr


def test_a_second_start_says_that_it_runs(running: House) -> None:
    before = running.processes()
    again = running.run("up", "--detach")
    assert "running already" in again.stdout
    assert running.record["base_url"] in again.stdout
    for arguments in ((), ("--fresh",), ("--port", "1234")):
        refused = running.run("up", *arguments, check=False)
        assert (refused.returncode, "running already" in refused.stdout) == (1, True)
    assert running.processes().keys() == before.keys()


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_part_comes_back(running: House, part: str) -> None:
    before = running.record["processes"][part]["pid"]
    os.kill(before, signal.SIGKILL)

    def is_back() -> bool:
        now = running.record["processes"].get(part)
        return now is not None and now["pid"] != before

    _eventually(is_back, f"{part} started again")
    _eventually(lambda: _is_ready(running), f"ready again after the end of {part}")
    if part == "simulator":
        address = plan.address(running.record["ports"]["simulator"])
        _eventually(lambda: _status(f"{address}/healthz") > 0, "the simulator answers again")


def test_a_killed_supervisor_takes_everything_along_and_loses_nothing(running: House) -> None:
    orders = running.ask(ORDERS)
    assert orders > 0
    os.kill(running.record["supervisor"], signal.SIGKILL)
    running.start()  # at once: what still ends is swept first
    assert all(len(pids) >= 1 for pids in running.processes().values())
    assert running.processes()["postgres"][:1] == [running.record["processes"]["postgres"]["pid"]]
    assert running.ask(ORDERS) == orders


def test_down_leaves_no_process_and_manage_works_without_the_house(running: House) -> None:
    orders = running.ask(ORDERS)
    ended = running.run("down")
    assert "stopped" in ended.stdout
    assert running.processes() == {}
    assert "not running" in running.run("down").stdout
    assert running.ask(ORDERS) == orders
    assert running.processes() == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_in_the_foreground_a_signal_ends_everything_in_order(stopped: House, number: int) -> None:
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = busy.getsockname()[1]
        up = subprocess.Popen(
            [str(ROOT / "bin" / "up"), "--port", str(taken)],
            env=stopped.environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said = []
            for line in up.stdout:
                said.append(line)
                if "stop: Ctrl-C" in line:
                    break
            assert f"port {taken} is in use: taking {stopped.record['ports']['web']}\n" in said
            assert _is_ready(stopped)
            up.send_signal(number)
            rest, _ = up.communicate(timeout=90)
            assert up.returncode == 0, "".join(said) + rest
            assert "stopped" in rest
            assert "killing" not in rest
            assert stopped.processes() == {}
        finally:
            if up.poll() is None:
                up.kill()
                up.wait()
