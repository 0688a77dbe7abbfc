# SPDX-License-Identifier: Apache-2.0
"""The rungs of a test: on what each runs, at which level, and how far the rig is expected to go."""

from __future__ import annotations

from pathlib import Path

import pytest
from messages import mentions, naming
from rig_runner import conducted, positioned

from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files, rehearsal
from rths_nodes.loop.scenario.schema import Scenario

NAME, RIG = "chen_ricles_2010", "bench_simulated"
ALL = tuple("abcdefg")
ELASTIC = 0.004


@pytest.fixture(scope="module")
def test() -> Scenario:
    return files.load(NAME, ["duration=1"], rig=RIG)


def with_limit(folder: Path, limit: str) -> Scenario:
    """The test on a bench whose rig file has this line about its elastic limit."""
    lines = files.locate(RIG, files.RIG).read_text().splitlines(keepends=True)
    rig = folder / "bench.yaml"
    rig.write_text("".join(limit if "elastic_limit" in line else line for line in lines))
    return files.load(NAME, ["duration=1"], rig=str(rig))


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """The test, on a bench with a low elastic limit."""
    return with_limit(tmp_path_factory.mktemp("rig"), f"    elastic_limit: {ELASTIC}\n")


def test_each_rung_has_its_level_ratio_host_and_port(test: Scenario) -> None:
    ladder = Ladder(test, ALL, 0.2, 10, realtime=False)
    steps = {name: ladder.step(name) for name in ALL}
    assert {name: step.level for name, step in steps.items()} == dict(
        zip(ALL, (1, 1, 1, 0.2, 0.2, 0.2, 1), strict=True)
    )
    assert {name: step.ratio for name, step in steps.items() if step.ratio != 1} == {"e": 10}
    assert {name for name, step in steps.items() if step.host == "composed"} == {"b"}
    assert {step.pace for step in steps.values()} == {"lockstep"}
    assert steps["g"].scenario == test
    assert steps["a"].hash == steps["b"].hash == rehearsal.hash_of(rehearsal.simulated(test))
    assert len({steps[name].hash for name in "deg"}) == 3


def test_in_real_time_the_rungs_on_the_rig_are_composed(test: Scenario) -> None:
    ladder = Ladder(test, ALL, 0.2, 10, realtime=True)
    for name, expected in {"a": ("embedded", "lockstep"), "b": ("composed", "lockstep")}.items():
        assert (ladder.step(name).host, ladder.step(name).pace) == expected
    for name in "cdefg":
        assert (ladder.step(name).host, ladder.step(name).pace) == ("composed", "realtime")


def test_a_level_that_nobody_has_given_is_asked_for_when_it_is_needed(test: Scenario) -> None:
    ladder = Ladder(test, ALL, None, None, realtime=False)
    ladder.check()
    for name, key in (("d", "level"), ("e", "level"), ("f", "level")):
        with pytest.raises(ConfigError, match=naming(key, "must be set", f"rung {name}")):
            ladder.step(name)
    assert ladder.step("g").level == 1.0


def test_only_slow_time_has_remarks_on_rates(test: Scenario) -> None:
    ladder = Ladder(test, ALL, 0.2, 10, realtime=False)
    assert [name for name in ALL if ladder.step(name).remarks()] == ["e"]


def test_a_rung_that_would_leave_the_elastic_limit_is_refused(bounded: Scenario) -> None:
    ladder = Ladder(bounded, ALL, 1.0, 10, realtime=False)
    words = r"rung f: axes.story_1 is expected to move by [\d.]+ mm, which exceeds elastic_limit = 4 mm.*now 1"
    with pytest.raises(ConfigError, match=words):
        ladder.check_elastic("f")
    ladder.check_elastic("g")
    lower = Ladder(bounded, ALL, ladder.proposed_level(), 10, realtime=False)
    lower.check_elastic("f")
    assert lower.expected("f")["story_1"]["displacement"] < ELASTIC


def test_the_proposed_level_stays_below_the_elastic_limit(bounded: Scenario) -> None:
    ladder = Ladder(bounded, ALL, None, None, realtime=False)
    far = ladder.expected("g")["story_1"]["displacement"]
    level = ladder.proposed_level()
    assert level is not None
    assert 0.3 * ELASTIC < level * far <= 0.8 * ELASTIC


def test_without_an_elastic_limit_no_level_is_proposed(tmp_path: Path) -> None:
    unbounded = with_limit(tmp_path, "")
    assert Ladder(unbounded, ALL, None, None, realtime=False).proposed_level() is None


def test_a_test_without_simulator_has_no_rehearsal_and_says_so() -> None:
    test = files.load(NAME, ["duration=1", "axes.story_1.specimen=null"], rig="bench_udp")
    with pytest.raises(ConfigError, match=naming("rehearsal", "simulator")):
        Ladder(test, ALL, 0.2, 10, realtime=False).check()
    ladder = Ladder(test, tuple("efg"), 0.2, 10, realtime=False)
    ladder.check()
    assert ladder.expected("f") == {}
    assert mentions(ladder.unknown("f")[0], "axes", "predicted")


def test_the_prompt_names_the_armed_rung_that_the_operator_has_chosen(tmp_path: Path) -> None:
    """It read `run, for rung d` while rung g was armed."""
    runner = conducted(tmp_path / "test")
    try:
        positioned(runner)
        step, offsets = runner.ladder.step("g"), runner.session.offsets
        assert offsets is not None
        runner.do("arm", rung="g", scenario_hash=step.hash, offsets_hash=offsets.hash)
        assert runner.next_rung == "g"
        runner.do("stop")
        assert runner.next_rung == "d"
    finally:
        runner.session.close()
