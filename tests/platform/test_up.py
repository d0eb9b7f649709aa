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

# One house for all of these, so they stay on one xdist worker, in this order.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("platform")]

PARTS = ["web", "stream", "worker", "beat", "simulator", "valkey", "postgres"]
ORDERS = "Order.objects.count()"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory):
    mine = House(var=tmp_path_factory.mktemp("a house with spaces"))
    mine.start()
    yield mine
    mine.stop()
    assert mine.processes() == {}
    mine.run("down", "--purge")
    assert not (mine.var / "postgres").exists()


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


def test_everything_answers(house: House) -> None:
    record = house.record
    assert record["state"] == "ready"
    assert set(record["processes"]) == set(PARTS)
    assert set(house.processes()) == set(PARTS)
    assert _is_ready(house)
    assert _status(f"{record['base_url']}/admin/login/") == 200
    for part in ("stream", "simulator"):
        assert 0 < _status(f"{plan.address(record['ports'][part])}/healthz") < 500
    assert house.demo["base_url"] == record["base_url"]
    assert house.demo["simulator"]["base_url"] == plan.address(record["ports"]["simulator"])
    assert (house.var / "demo.json").stat().st_mode & 0o077 == 0


def test_the_running_product_may_change_rows_and_nothing_else(house: House) -> None:
    """The application logs in as a role that owns no table, cannot make one and cannot empty one."""
    run = "__import__('django.db').db.connection.cursor().execute"
    assert house.ask(f"{run}('SELECT current_user').fetchone()") == ["quits_app"]
    for attempt in ("CREATE TABLE mine ()", "TRUNCATE coupon_operation", "DROP TABLE orders"):
        refused = house.manage("shell", "-c", f"{run}('{attempt}')", check=False)
        assert refused.returncode != 0
        assert "InsufficientPrivilege" in refused.stderr


def test_a_second_start_says_that_it_runs(house: House) -> None:
    before = house.processes()
    again = house.run("up", "--detach")
    assert "running already" in again.stdout
    assert house.record["base_url"] in again.stdout
    for arguments in ((), ("--fresh",), ("--port", "1234")):
        refused = house.run("up", *arguments, check=False)
        assert (refused.returncode, "running already" in refused.stdout) == (1, True)
    assert house.processes().keys() == before.keys()


@pytest.mark.parametrize("part", PARTS)
def test_a_killed_part_comes_back(house: House, part: str) -> None:
    before = house.record["processes"][part]["pid"]
    os.kill(before, signal.SIGKILL)

    def is_back() -> bool:
        now = house.record["processes"].get(part)
        return now is not None and now["pid"] != before

    _eventually(is_back, f"{part} started again")
    _eventually(lambda: _is_ready(house), f"ready again after the end of {part}")
    if part == "simulator":
        address = plan.address(house.record["ports"]["simulator"])
        _eventually(lambda: _status(f"{address}/healthz") > 0, "the simulator answers again")


def test_a_killed_supervisor_takes_everything_along_and_loses_nothing(house: House) -> None:
    orders = house.ask(ORDERS)
    assert orders > 0
    os.kill(house.record["supervisor"], signal.SIGKILL)
    house.start()  # at once: what still ends is swept first
    assert all(len(pids) >= 1 for pids in house.processes().values())
    assert house.processes()["postgres"][:1] == [house.record["processes"]["postgres"]["pid"]]
    assert house.ask(ORDERS) == orders


def test_down_leaves_no_process_and_manage_works_without_the_house(house: House) -> None:
    orders = house.ask(ORDERS)
    stopped = house.run("down")
    assert "stopped" in stopped.stdout
    assert house.processes() == {}
    assert "not running" in house.run("down").stdout
    assert house.ask(ORDERS) == orders
    assert house.processes() == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_in_the_foreground_a_signal_ends_everything_in_order(house: House, number: int) -> None:
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        taken = busy.getsockname()[1]
        running = subprocess.Popen(
            [str(ROOT / "bin" / "up"), "--port", str(taken)],
            env=house.environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said = []
            for line in running.stdout:
                said.append(line)
                if "stop: Ctrl-C" in line:
                    break
            assert f"port {taken} is in use: taking {house.record['ports']['web']}\n" in said
            assert _is_ready(house)
            running.send_signal(number)
            rest, _ = running.communicate(timeout=90)
            assert running.returncode == 0, "".join(said) + rest
            assert "stopped" in rest
            assert "killing" not in rest
            assert house.processes() == {}
        finally:
            if running.poll() is None:
                running.kill()
                running.wait()
