"""The harness of the benchmarks, fed with clocks that we set, and one comparison that is real.

Nothing here depends on how long anything takes.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist

from benchmarks import all_reduce, results, scratch_step
from benchmarks.__main__ import FAMILIES, main
from benchmarks.goals import GOALS, Goal
from benchmarks.pairs import Arms, Round, compare, judged, measure, refused, slowest
from tests.support.planting import planted

CALM: list[Round] = [(2.0, 1.0, 1.0)] * 15


class World:
    """A clock that stands still except while an arm runs, and a record of what happened."""

    def __init__(self, first: float = 2.0, second: float = 1.0) -> None:
        self.now, self.log = 0.0, []
        self.arms = Arms(lambda: self.run("first", first), lambda: self.run("second", second))

    def run(self, name: str, seconds: float) -> None:
        self.log.append(name)
        # Every run is slower than the one before, so that each has a time of its own.
        self.now += seconds * (1 + len(self.log) / 1e6)

    def barrier(self) -> None:
        self.log.append("barrier")
        self.now += 100

    def measure(self, pairs: int = 15, function: Callable = measure, **options: object) -> list:
        clock = lambda: self.now  # noqa: E731
        return function(self.arms, pairs=pairs, clock=clock, show=False, **options)


def runs(world: World) -> list[str]:
    return [name for name in world.log if name != "barrier"]


def check_seconds(function: Callable) -> None:
    rounds = World().measure(function=function)
    assert len(rounds) == 15
    for first, second, again in rounds:
        assert (first, second, again) == pytest.approx((2, 1, 1), rel=1e-3)
        assert second != again


def check_warm_ups(function: Callable) -> None:
    world = World()
    rounds = world.measure(function=function)
    assert len(runs(world)) == 3 * (3 + 15)
    assert min(min(each) for each in rounds) > 1 + 3 * 3 / 1e6


def check_barriers(function: Callable) -> None:
    world = World()
    seconds = world.measure(function=function, barrier=world.barrier)[0]
    assert max(seconds) < 100  # waiting is not running
    for start in range(0, len(world.log), 3):
        before, arm, after = world.log[start : start + 3]
        assert (before, after) == ("barrier", "barrier") != arm


def check_order(function: Callable) -> None:
    def order(seed: int) -> list[str]:
        world = World()
        world.measure(function=function, seed=seed)
        return runs(world)

    assert order(0) == order(0) != order(1)
    rounds = {tuple(order(0)[start : start + 3]) for start in range(0, 3 * 18, 3)}
    assert len(rounds) == 3  # first, middle, or last
    for each in rounds:
        assert sorted(each) == ["first", "second", "second"]


CHECKS = (check_seconds, check_warm_ups, check_barriers, check_order)
FAULTS = {
    "the order is fixed": ("chance.sample(range(3), 3)", "range(3)"),
    "the order is new in every run": ("random.Random(seed)", "random.Random()"),
    "warm-ups count": ("rounds[warm_ups:]", "rounds"),
    "too few runs": ("range(warm_ups + pairs)", "range(pairs)"),
    "the first arm is its own control": (
        "(arms.first, arms.second, arms.second)",
        "(arms.first, arms.second, arms.first)",
    ),
    "the arms are swapped": (
        "(seconds[0], seconds[1], seconds[2])",
        "(seconds[1], seconds[0], seconds[2])",
    ),
    "the second run is not its own": (
        "(seconds[0], seconds[1], seconds[2])",
        "(seconds[0], seconds[1], seconds[1])",
    ),
    "nobody is waited for before": (
        "            barrier()\n            start",
        "            start",
    ),
    "the barrier is timed": (
        "start = clock()\n            runs[which]()",
        "start = clock()\n            barrier()\n            runs[which]()",
    ),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_harness_measures(check: Callable) -> None:
    check(measure)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_the_harness_is_noticed(fault: str) -> None:
    faulty = planted(measure, *FAULTS[fault])["measure"]
    noticed = []
    for check in CHECKS:
        try:
            check(faulty)
        except AssertionError:
            noticed.append(check)
    assert noticed


def test_processes_together_are_as_slow_as_the_slowest() -> None:
    assert slowest([[(1, 5, 2)], [(3, 4, 1)]]) == [(3, 5, 2)]


def test_the_ratio_is_the_median_of_pairs_not_the_ratio_of_medians() -> None:
    # The machine is ten times slower in the middle rounds, for both arms.
    rounds = [(2.0 * slow, slow, slow) for slow in [1.0] * 5 + [10.0] * 5 + [1.0] * 5]
    row = judged("epoch", rounds)
    assert row["ratio"] == 2 and row["interval"] == [2, 2] and row["control"] == 1
    assert row["pairs"] == 15 and row["seconds"] == [2, 1]


def test_the_interval_holds_the_median_and_grows_with_the_noise() -> None:
    def width(noise: float) -> float:
        row = judged("epoch", [(2 + noise * (i % 5 - 2), 1.0, 1.0) for i in range(15)])
        low, high = row["interval"]
        assert low <= row["ratio"] <= high
        return high - low

    assert 0 < width(0.01) < width(0.1) < 1


def test_a_restless_machine_settles_nothing() -> None:
    for again, verdict in ((1.02, "met"), (0.98, "met"), (1.04, "inconclusive")):
        assert judged("epoch", [(2.0, 1.0, again)] * 15)["verdict"] == verdict
    assert judged("epoch", [(2.0, 1.0, 0.96)] * 15)["verdict"] == "inconclusive"
    assert judged("epoch", [(1.0, 1.0, 0.96)] * 15)["verdict"] == "inconclusive"


@pytest.mark.parametrize(("name", "good", "bad"), [("epoch", 1.36, 1.34), ("buckets", 1.04, 1.06)])
def test_a_goal_is_met_on_its_own_side(name: str, good: float, bad: float) -> None:
    assert judged(name, [(good, 1.0, 1.0)] * 15)["verdict"] == "met"
    assert judged(name, [(bad, 1.0, 1.0)] * 15)["verdict"] == "missed"


def test_claims_of_a_few_percent_take_thirty_pairs() -> None:
    assert {goal.ratio: goal.pairs for goal in GOALS.values()} == {
        **dict.fromkeys((1.05, 1.08, 1.1), 30),
        **dict.fromkeys((1.15, 1.35, 3, 8, 5, 4, 0.35, 0.05), 15),
    }


def differing() -> Arms:
    raise AssertionError("the sums differ by 1.0e+00")


def differing_on_rank_1() -> Arms:
    if dist.get_rank() == 1:
        raise AssertionError("rank 1 differs")
    return Arms(dist.barrier, dist.barrier)


def broken() -> Arms:
    raise ValueError("not a matter of results")


def test_arms_that_do_not_compute_the_same_are_refused() -> None:
    row = compare("epoch", differing, pairs=1)
    assert row == refused("epoch", "the sums differ by 1.0e+00")
    assert "refused: the sums differ" in results.table([row])
    row = compare("epoch", differing_on_rank_1, pairs=1, processes=2)
    assert row == refused("epoch", "rank 1 differs")
    with pytest.raises(ValueError, match="not a matter"):
        compare("epoch", broken, pairs=1)


def test_results_return_from_their_file_and_leave_the_others_alone(tmp_path: Path) -> None:
    rows = {name: judged(name, CALM, {"images": 7}) for name in ("epoch", "buckets")}
    for name, row in rows.items():
        results.write(name, [row], tmp_path)
    found = {row["name"]: row for row in results.read(tmp_path)}
    assert list(found) == ["buckets", "epoch"]  # in the order of the table
    for name, row in rows.items():
        assert {key: found[name][key] for key in row} == row
        assert {"date", "processor", "cores", "torch", "python"} <= found[name]["machine"].keys()
    before = (tmp_path / "buckets.json").read_bytes()
    results.write("epoch", [refused("epoch", "why")], tmp_path)
    assert (tmp_path / "buckets.json").read_bytes() == before
    assert [row["verdict"] for row in results.read(tmp_path)] == ["missed", "refused"]


def test_a_machine_without_scipy_leaves_the_interval_to_the_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = [(2 + i / 100, 1.0, 1.0) for i in range(15)]
    expected = judged("epoch", rounds)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "scipy.stats", None)
        row = judged("epoch", rounds)
        assert row == expected | {"interval": None} and "needs scipy" in results.table([row])
        results.write("epoch", [row], tmp_path)
    assert results.read(tmp_path)[0]["interval"] == pytest.approx(expected["interval"])


def test_an_unknown_row_is_named_with_those_there_are() -> None:
    with pytest.raises(SystemExit, match=r"no benchmark 'rings'; there are scratch, ddp"):
        main(["ring", "rings"])


def test_the_committed_results_are_about_goals_that_still_stand() -> None:
    for path in results.FOLDER.glob("*.json"):
        assert path.stem in {*FAMILIES, "gpu"}
        for row in json.loads(path.read_text())["rows"]:
            goal = GOALS[row["name"]]
            if row["verdict"] != "refused":
                assert (row["row"], row["goal"], row["sense"]) == (goal.row, goal.ratio, goal.sense)


def test_goals_are_met_from_their_side() -> None:
    assert Goal(1, "", "<=", 1.0).met_by(1.0) and not Goal(1, "", "<=", 1.0).met_by(1.1)
    assert Goal(1, "", ">=", 1.0).met_by(1.0) and not Goal(1, "", ">=", 1.0).met_by(0.9)


def test_a_real_row_from_end_to_end() -> None:
    for row in scratch_step.rows(2, batch_size=8, steps=1):
        assert row["pairs"] == len(row["rounds"]) == 2
        assert row["verdict"] in {"met", "missed", "inconclusive"}
        assert row["facts"]["images a step"] == 8 and len(row["load"]) == 2
    name = "ring, 4 MB"
    row = compare(name, all_reduce.ring_arms, 10, 1, pairs=2, processes=2)
    assert row["facts"]["bytes"] == 40 and name in results.table([row])
