"""The supervisor itself, on toy processes: order, restarts, back-off, ends."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from house import keys, processes

HERE = Path(__file__).resolve().parent
BIN = HERE.parent.parent / "bin"

LIVES = "import time; time.sleep(600)"
DIARY = """
import pathlib, signal, sys, time
diary = pathlib.Path({diary!r})
def end(*_):
    time.sleep({slowly})
    diary.open('a').write('{name} ended\\n')
    sys.exit()
signal.signal(signal.SIGTERM, end)
diary.open('a').write('{name} began\\n')
while True: time.sleep(600)
"""


class Toy:
    """A running toy house."""

    def __init__(self, var: Path, parts: list[dict]) -> None:
        self.var = var
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "toy_house.py"), str(BIN), str(var), json.dumps(parts)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []

    def until(self, word: str) -> None:
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            if word in line:
                return
        raise AssertionError(f"never said {word!r}: {self.said}")

    def pid(self, name: str) -> int | None:
        record = json.loads((self.var / "run.json").read_text())
        return record["processes"].get(name, {}).get("pid")

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=30)
        self.said += rest.splitlines()
        return self.process.returncode

    def left(self) -> list[str]:
        with processes.marked(keys.keys_of(self.var).house_id) as found:
            return [process.name for process in found]


@pytest.fixture
def toy(tmp_path):
    running: list[Toy] = []

    def start(*parts: dict) -> Toy:
        running.append(Toy(tmp_path, list(parts)))
        return running[0]

    yield start
    for house in running:
        with contextlib.suppress(ProcessLookupError):
            house.process.kill()
        house.process.wait()
        house.process.stdout.close()
        processes.sweep(keys.keys_of(tmp_path).house_id)


def _eventually(holds, within: float = 10.0) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


def test_parts_start_after_what_they_need_and_end_before_it(toy, tmp_path):
    diary = tmp_path / "diary"
    wishes = {"valkey": (), "prepare": ("valkey",), "worker": ("prepare",), "web": ("prepare",), "beat": ("web",)}
    parts = []
    for name, needs in wishes.items():
        program = DIARY.format(name=name, diary=str(diary), slowly=0.1)
        if name == "prepare":
            program = f"open({str(diary)!r}, 'a').write('prepare done\\n')"
        sign = tmp_path / f"{name}.sign"
        parts.append({"name": name, "program": program, "needs": needs, "task": name == "prepare"})
        if name in ("valkey", "web", "worker"):
            parts[-1]["program"] = parts[-1]["program"].replace("while True", f"open({str(sign)!r}, 'w')\nwhile True")
            parts[-1]["sign"] = str(sign)
    house = toy(*parts)
    house.until("READY")
    _eventually(lambda: "beat began" in diary.read_text())
    assert house.end() == 0
    lines = diary.read_text().splitlines()
    assert lines[:2] == ["valkey began", "prepare done"]
    assert set(lines[2:4]) == {"web began", "worker began"}
    assert lines[4] == "beat began"
    assert lines[5:] == ["beat ended", "web ended", "worker ended", "valkey ended"]
    assert house.left() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_every_polite_end_is_orderly(toy, number):
    house = toy({"name": "web", "program": LIVES})
    house.until("READY")
    assert house.end(number) == 0
    assert house.left() == []


def test_a_killed_part_is_started_again(toy):
    house = toy({"name": "web", "program": LIVES}, {"name": "worker", "program": LIVES})
    house.until("READY")
    before, bystander = house.pid("web"), house.pid("worker")
    os.kill(before, signal.SIGKILL)
    house.until("starting it again")
    _eventually(lambda: house.pid("web") not in (None, before))
    assert house.pid("worker") == bystander
    assert house.end() == 0
    assert house.left() == []


@pytest.mark.slow
def test_a_part_that_keeps_dying_is_started_ever_more_slowly(toy, tmp_path):
    births = tmp_path / "births"
    program = f"import time; open({str(births)!r}, 'a').write(f'{{time.monotonic()}}\\n'); time.sleep(0.3)"
    house = toy({"name": "web", "program": program})
    house.until("READY")
    _eventually(lambda: births.exists() and len(births.read_text().split()) >= 4, within=20)
    moments = [float(moment) for moment in births.read_text().split()]
    pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert pauses[2] > pauses[0] + 0.5
    assert house.end() == 0


def test_a_part_that_cannot_start_stops_the_start_with_its_last_words(toy):
    house = toy(
        {"name": "valkey", "program": LIVES},
        {"name": "prepare", "program": "raise SystemExit('the reason')", "needs": ["valkey"], "task": True},
        {"name": "web", "program": LIVES, "needs": ["prepare"]},
    )
    house.until("the reason")
    assert house.process.wait(20) == 1
    assert house.left() == []


def test_who_does_not_listen_is_killed_with_its_children(toy, tmp_path):
    deaf = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        f" time.sleep(600)']); open({str(tmp_path / 'sign')!r}, 'w'); time.sleep(600)"
    )
    house = toy({"name": "web", "program": deaf, "patience": 0.3, "sign": str(tmp_path / "sign")})
    house.until("READY")
    assert len(house.left()) == 2
    assert house.end() == 0
    assert house.left() == []
    assert any("killing it" in line for line in house.said)


def test_a_second_signal_hurries(toy, tmp_path):
    slow = DIARY.format(name="worker", diary=str(tmp_path / "diary"), slowly=30)
    house = toy({"name": "worker", "program": slow, "patience": 60})
    house.until("READY")
    _eventually((tmp_path / "diary").exists)
    house.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    began = time.monotonic()
    assert house.end() == 0
    assert time.monotonic() - began < 10
    assert house.left() == []


def test_an_end_during_the_start_is_orderly_too(toy, tmp_path):
    house = toy({"name": "web", "program": LIVES, "sign": str(tmp_path / "never")})
    _eventually(lambda: (tmp_path / "run.json").exists() and house.pid("web"))
    assert house.end() == 0
    assert "READY" not in house.said
    assert house.left() == []


@pytest.mark.slow
def test_a_log_that_is_full_is_put_aside(toy, tmp_path):
    program = (
        "import sys, time\nwhile True: sys.stdout.write('x' * 1000000 + chr(10)); sys.stdout.flush(); time.sleep(0.02)"
    )
    house = toy({"name": "web", "program": program})
    house.until("READY")
    log = tmp_path / "log" / "web.log"
    _eventually(lambda: log.with_name("web.log.1").exists(), within=30)
    assert house.end() == 0
    assert log.with_name("web.log.1").stat().st_size > 10 * 1024 * 1024
