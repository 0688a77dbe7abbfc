# SPDX-License-Identifier: Apache-2.0
"""Tests of the rungs of a test: host, level, expected motion, and comparison with earlier rungs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from messages import mentions, naming
from rig_runner import arm, conducted, positioned
from served_test import runner_of

import rths_nodes
from rths_nodes.analysis.overlay import peaks_of, rung_differences
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.console import Console, complete
from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner, comparison_remarks, next_act
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files, rehearsal
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording.run import Run

NAME, RIG = "chen_ricles_2010", "bench_simulated"
ALL = tuple("abcdefg")
ELASTIC = 0.004


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return files.load(NAME, ["duration=1"], rig=RIG)


def with_elastic_limit(folder: Path, line: str) -> Scenario:
    """Load the scenario with another line for the elastic limit in the rig file."""
    lines = files.locate(RIG, files.RIG).read_text().splitlines(keepends=True)
    rig = folder / "bench.yaml"
    rig.write_text("".join(line if "elastic_limit" in text else text for text in lines))
    return files.load(NAME, ["duration=1"], rig=str(rig))


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """Scenario on a bench with a low elastic limit."""
    return with_elastic_limit(tmp_path_factory.mktemp("rig"), f"    elastic_limit: {ELASTIC}\n")


def test_rungs_have_level_ratio_host_and_port(scenario: Scenario) -> None:
    ladder = Ladder(scenario, ALL, 0.2, 10, realtime=False)
    steps = {name: ladder.step(name) for name in ALL}
    assert [step.level for step in steps.values()] == [1, 1, 1, 0.2, 0.2, 0.2, 1]
    assert {name: step.ratio for name, step in steps.items() if step.ratio != 1} == {"e": 10}
    assert {name for name, step in steps.items() if step.host == "composed"} == {"b"}
    assert {step.pace for step in steps.values()} == {"lockstep"}
    assert steps["g"].scenario == scenario
    assert steps["a"].hash == steps["b"].hash == rehearsal.simulated(scenario).whole_hash()
    assert len({steps[name].hash for name in "deg"}) == 3


def test_rungs_on_the_rig_are_composed_in_real_time(scenario: Scenario) -> None:
    ladder = Ladder(scenario, ALL, 0.2, 10, realtime=True)
    expected = dict.fromkeys("cdefg", ("composed", "realtime"))
    expected |= {"a": ("embedded", "lockstep"), "b": ("composed", "lockstep")}
    assert {name: (ladder.step(name).host, ladder.step(name).pace) for name in ALL} == expected


def test_missing_level_is_reported_when_needed(scenario: Scenario) -> None:
    ladder = Ladder(scenario, ALL, None, None, realtime=False)
    ladder.check()
    for name in "def":
        with pytest.raises(ConfigError, match=naming("level", "must be set", f"rung {name}")):
            ladder.step(name)
    assert ladder.step("g").level == 1.0


def test_only_slow_time_has_remarks_on_rates(scenario: Scenario) -> None:
    ladder = Ladder(scenario, ALL, 0.2, 10, realtime=False)
    assert [name for name in ALL if ladder.step(name).remarks()] == ["e"]


def test_rung_beyond_the_elastic_limit_is_refused(bounded: Scenario) -> None:
    ladder = Ladder(bounded, ALL, 1.0, 10, realtime=False)
    reason = r"rung f: axes.story_1 is expected to move by [\d.]+ mm, which exceeds elastic_limit = 4 mm.*from 1"
    with pytest.raises(ConfigError, match=reason):
        ladder.check_elastic("f")
    ladder.check_elastic("g")
    lower = Ladder(bounded, ALL, ladder.proposed_level(), 10, realtime=False)
    lower.check_elastic("f")
    assert lower.expected("f")["story_1"]["displacement"] < ELASTIC


def test_proposed_level_stays_below_the_elastic_limit(bounded: Scenario, tmp_path: Path) -> None:
    ladder = Ladder(bounded, ALL, None, None, realtime=False)
    displacement = ladder.expected("g")["story_1"]["displacement"]
    assert 0.3 * ELASTIC < ladder.proposed_level() * displacement <= 0.8 * ELASTIC
    unbounded = with_elastic_limit(tmp_path, "")
    assert Ladder(unbounded, ALL, None, None, realtime=False).proposed_level() is None


def test_question_for_the_level_proposes_one(bounded: Scenario) -> None:
    ladder, questions = Ladder(bounded, ALL, None, None, realtime=False), list[str]()
    complete(ladder, Console(Answers(), lambda question: questions.append(question) or "", print), "d")
    assert ladder.level == ladder.proposed_level()
    assert questions[0].endswith(f"({ladder.level}): ")


def test_rig_without_simulator_has_no_rehearsal() -> None:
    scenario = files.load(NAME, ["duration=1", "axes.story_1.specimen=null"], rig="bench_udp")
    with pytest.raises(ConfigError, match=naming("rehearsal", "simulator")):
        Ladder(scenario, ALL, 0.2, 10, realtime=False).check()
    ladder = Ladder(scenario, tuple("efg"), 0.2, 10, realtime=False)
    ladder.check()
    assert ladder.expected("f") == {}
    assert mentions(ladder.unknown("f")[0], "axes", "predicted")


def test_next_rung_is_the_armed_one(tmp_path: Path) -> None:
    """The prompt read `run, for rung d` while rung g was armed."""
    runner = conducted(tmp_path / "test")
    with closing(runner.session):
        positioned(runner)
        arm(runner, "g")
        assert runner.next_rung == "g"
        runner.do("stop")
        assert runner.next_rung == "d"


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ProcedureRunner]:
    """Test of a rung on the simulator and one on the rig."""
    runner = runner_of(tmp_path, 0, planned="ag")
    yield runner
    runner.session.close()


def test_finish_is_proposed_after_connecting_without_rehearsal(runner: ProcedureRunner) -> None:
    """Connecting reports the position and whether the rig follows; a test that ends before its rungs is held."""
    assert next_act(runner, lambda: False) == "rehearse"
    assert mentions(runner.do("connect"), "story_1", "mm", "kN", "hydraulics", "interlock")
    assert runner.next_rung == "a"
    assert runner.session.possible()["rehearse"]
    assert next_act(runner, lambda: False) == "finish"
    assert not runner.session.possible()["finish"]
    runner.do("finish")
    code, reason = runner.outcome()
    assert code is ExitCode.HELD
    assert mentions(reason, "operator", "rung a")


@pytest.fixture(scope="module")
def run() -> Run:
    return rths_nodes.run(NAME, ["duration=1"])


def test_rung_equals_itself(run: Run) -> None:
    assert rung_differences(run, 1.0, run, 1.0) == {"displacement of story_1": 0.0, "force of story_1": 0.0}


def test_differences_are_relative_to_the_peak(run: Run) -> None:
    changed = replace(run, displacement=1.1 * run.displacement, force=-run.force)
    result = rung_differences(changed, 1.0, run, 1.0)
    assert result["displacement of story_1"] == pytest.approx(0.1)
    assert result["force of story_1"] == pytest.approx(2.0)


def test_differences_are_divided_by_the_level(run: Run) -> None:
    half = replace(run, displacement=0.5 * run.displacement, force=0.5 * run.force)
    assert max(rung_differences(half, 0.5, run, 1.0).values()) == pytest.approx(0.0, abs=1e-12)


def test_rungs_of_different_time_ratios_are_compared_at_steps() -> None:
    overrides = ["duration=1", "axes.story_1.actuator={type: pure_delay}", "compensator={type: none}"]
    fast = files.load(NAME, [*overrides, "axes.story_1.specimen={type: elastoplastic_absorber}"])
    result = rung_differences(rths_nodes.run(rehearsal.slower(fast, 4)), 1.0, rths_nodes.run(fast), 1.0)
    assert max(result.values()) < 0.01


def test_stopped_rung_is_compared_up_to_its_end(run: Run) -> None:
    n = len(run.displacement) // 2
    part = replace(run, displacement=run.displacement[:n], force=run.force[:n])
    assert max(rung_differences(part, 1.0, run, 1.0).values()) == 0.0


def test_difference_to_a_run_without_motion_is_nan(run: Run) -> None:
    still = replace(run, displacement=0.0 * run.displacement, force=0.0 * run.force)
    assert math.isnan(rung_differences(run, 1.0, still, 1.0)["force of story_1"])
    assert rung_differences(still, 1.0, still, 1.0)["force of story_1"] == 0.0


def test_peaks_and_bridged_samples_of_a_run(run: Run) -> None:
    peaks = peaks_of(run)["story_1"]
    assert peaks["displacement"] == np.abs(run.displacement).max()
    assert peaks["force"] == np.abs(run.force).max()
    assert 0.0 < peaks["velocity"] < 0.76
    flags = run.flags.copy()
    flags[3:5] |= FLAG_BRIDGED
    assert replace(run, flags=flags).bridged == 2


def test_remarks_name_another_level_or_time_ratio() -> None:
    assert comparison_remarks(1.0, 1, 1.0, 1) == []
    assert "level 0.2" in comparison_remarks(1.0, 1, 0.2, 1)[0]
    assert "time ratio 10" in comparison_remarks(0.2, 1, 0.2, 10)[0]
