"""The plan of a fault run, cheaply: the run itself (bin/test faults) takes minutes."""

import itertools

from house import plan as house_plan
from house import processes

from payments.simulator import faults as simulator_faults
from tests.faults.plan import CALL_FAULTS, GAP_SECONDS, NOTIFY_FAULTS, WEIGHTS, draw


def test_a_seed_is_a_plan() -> None:
    assert draw(7, minutes=3) == draw(7, minutes=3) != draw(8, minutes=3)


def test_three_minutes_hold_enough_of_everything() -> None:
    for seed in range(50):
        plan = draw(seed, minutes=3)
        times = [blow.at for blow in plan.blows]
        assert len([blow for blow in plan.blows if blow.what != "pause"]) >= 22
        assert times == sorted(times) and times[-1] < plan.seconds
        assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= GAP_SECONDS - 1e-9
        assert 90 <= abs(plan.skew_seconds) <= 150
    assert {blow.part for seed in range(50) for blow in draw(seed, minutes=3).blows} == set(WEIGHTS)


def test_the_parts_are_those_of_the_house() -> None:
    stopped = {name for together in house_plan.STOPPING for name in together}
    assert set(WEIGHTS) - {"skewed"} == stopped - {"prepare", "simulator"}
    assert set(WEIGHTS) > processes.SERVERS


def test_the_simulator_knows_these_faults() -> None:
    assert {kind for kind, *_ in NOTIFY_FAULTS} <= set(simulator_faults.NOTIFY)
    assert {kind for kind, *_ in CALL_FAULTS} <= set(simulator_faults.BEFORE | simulator_faults.AFTER)
