# SPDX-License-Identifier: Apache-2.0
"""How much work is left, by what each kind of it has cost: arithmetic with a clock of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rths_nodes.app.commands import terminal
from rths_nodes.app.studies import remaining, study
from rths_nodes.app.studies.engine import Where
from rths_nodes.app.studies.remaining import EVERY_S, Kind, Remaining

CHEAP, DEAR = 2.0, 20.0


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def worked(
    order: Sequence[int], seconds: Sequence[float], clock: Clock, step: float = 0.5
) -> Iterator[list[float]]:
    """Shares of pieces that take so many ``seconds``, one after the other, each ``step`` s."""
    shares = [0.0] * len(seconds)
    for number in order:
        for look in range(1, round(seconds[number] / step) + 1):
            clock.now += step
            shares[number] = look * step / seconds[number]
            yield list(shares)


def test_what_is_left_counts_by_the_cost_of_its_kind() -> None:
    kinds: list[Kind] = [("quick", n) for n in range(8)] + [("slow", n) for n in range(8)]
    seconds = [CHEAP] * 8 + [DEAR] * 8
    clock = Clock()
    told = Remaining(kinds, clock=clock)
    order = [0, 8, *range(1, 8), *range(9, 16)]  # one of each kind first, as a study does
    begun, told_at = clock.now, {}
    for shares in worked(order, seconds, clock):
        done, of = told(shares)
        told_at[clock.now - begun] = of - done
    whole = sum(seconds)
    for after, left in told_at.items():
        if after >= CHEAP + DEAR:
            assert left == pytest.approx(whole - after, abs=1e-6), after
    # half of the pieces are not half of the work
    assert told_at[CHEAP + DEAR + 7 * CHEAP] == pytest.approx(7 * DEAR)


def test_an_estimate_that_falls_with_the_clock(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """By the number of pieces alone it stood at the same minutes while the dear ones at the end were done."""
    kinds: list[Kind] = [("quick",)] * 10 + [("slow",)] * 10
    seconds = [10.0] * 10 + [60.0] * 10
    clock = Clock()
    monkeypatch.setattr(terminal.time, "monotonic", clock)
    lines, tell = terminal._Lines("board"), Remaining(kinds, clock=clock)
    order = [0, 10, *range(1, 10), *range(11, 20)]
    for shares in worked(order, seconds, clock):
        lines(*tell(shares))
    said = [line for line in capsys.readouterr().err.splitlines() if " min left" in line]
    minutes = [int(line.split("about ")[1].split()[0]) for line in said]
    first = next(place for place, line in enumerate(said) if float(line.split(": ")[1].split("%")[0]) >= 10.0)
    settled = minutes[first:]
    assert settled == sorted(settled, reverse=True)
    assert max(settled.count(value) for value in settled) <= 3  # a line each half a minute


def test_runs_of_an_unknown_case_cost_what_their_law_costs_elsewhere() -> None:
    clock = Clock()
    told = Remaining([("quick", "a"), ("slow", "a"), ("quick", "b"), ("slow", "b")], clock=clock)
    for shares in worked([0, 1], [CHEAP, DEAR, CHEAP, DEAR], clock):
        found = told(shares)
    assert found == pytest.approx((CHEAP + DEAR, 2.0 * (CHEAP + DEAR)))


def test_a_run_that_is_stopped_early_cost_little() -> None:
    clock = Clock()
    told = Remaining([("none",)] * 4, clock=clock)
    clock.now += 1.0
    told([0.1, 0.0, 0.0, 0.0])
    assert told([0.1, 0.0, 0.0, 0.0]) == pytest.approx((1.0, 40.0))
    clock.now += 1.0
    assert told([1.0, 0.0, 0.0, 0.0]) == pytest.approx((2.0, 8.0))


def test_processes_side_by_side_share_no_more_time_than_they_are() -> None:
    clock = Clock()
    told = Remaining([("x",)] * 6, at_once=2, clock=clock)
    clock.now += 3.0
    assert told([1.0, 1.0, 1.0, 0.0, 0.0, 0.0]) == pytest.approx((6.0, 12.0))  # three in 3 s of two processes


def test_sizes_weigh_pieces_of_one_kind() -> None:
    clock = Clock()
    told = Remaining([("x",)] * 2, sizes=[100.0, 900.0], clock=clock)
    clock.now += 1.0
    assert told([1.0, 0.0]) == pytest.approx((1.0, 10.0))


def test_nothing_is_done_before_a_cost_is_known_and_all_at_the_end() -> None:
    clock = Clock()
    told = Remaining([("x",)] * 3, clock=clock)
    assert told([0.0] * 3) == (0.0, 3.0)
    clock.now += EVERY_S
    assert told([0.0] * 3) == (0.0, 3.0)
    clock.now += 2.0
    done, of = told([1.0] * 3)
    assert done == of > 0.0
    assert remaining.weighed(lambda done, of: None, [])([]) is None


def test_a_study_does_a_run_of_each_kind_first(tmp_path: Path) -> None:
    from rths_nodes.app.studies.design import load
    from rths_nodes.app.studies.study import Journal

    file = tmp_path / "study.yaml"
    file.write_text(
        "version: 1\nname: s\nscenario: predefined_sine\nset: {duration: 1.0}\nfactors:\n"
        "  law: {settings: {quick: {compensator: {type: none}},\n"
        "    slow: {compensator: {type: inverse, alpha: 29}}}}\n"
        "  seed: {list: [1, 2, 3]}\n"
    )
    of = load(file)
    with Journal(tmp_path / "out") as journal:
        rows = study.undone(of, journal)
        assert [row.levels["law"] for row in rows] == ["quick", "slow"] * 3
        assert [row.levels["seed"] for row in rows] == [1, 1, 2, 2, 3, 3]
        seen: list[tuple[float, float]] = []
        study.run(of, journal, Where(), study.weighed(rows, lambda done, of: seen.append((done, of)), Where()))
        assert seen[-1][0] == seen[-1][1]
        assert study.undone(of, journal) == []
