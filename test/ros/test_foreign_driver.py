# SPDX-License-Identifier: Apache-2.0
"""A driver node of somebody else, in a process of its own: the limits are kept on our side of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

import rths_nodes
from rths_nodes.core.samples import FLAG_TRIPPED, INTERLOCK_OPEN, Command, Measurement
from rths_nodes.loop import outcomes
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.nodes.base import RthsNode
from rths_nodes.ros.nodes.driver_guard import LATER_NS, DriverGuard
from rths_nodes.ros.nodes.phase import PhaseMachine, StateOfTest

NAME = "chen_ricles_2010"
DRIVER = Path(__file__).with_name("foreign_driver.py")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "driver_node"
OURS = [peer for peer in names.NODES if peer != names.ACTUATOR]
IN_RIG = ("--ros-args", "-r", f"__ns:=/{names.NAMESPACE}")
SAMPLES = files.load(NAME, ["duration=1"]).samples
SAMPLES_OF_ALL = files.load(NAME).samples
BREACH = 500


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts our nodes, each in a process of its own, and the foreign driver; how they ended."""
    path = os.pathsep.join(filter(None, (str(Path(rths_nodes.__file__).parents[1]), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path}
    with ExitStack() as leaving:

        def popen(*words: str, **further: str) -> subprocess.Popen[str]:
            made = subprocess.Popen(
                [sys.executable, *words],
                env=environment | further,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            leaving.callback(made.wait)
            leaving.callback(made.kill)
            return made

        def run(*driver: object, words: Sequence[str] = (), launched: bool = False, **options: object) -> Any:
            given = {"scenario": NAME, "overrides": f"[duration=1, {options.pop('override', 'seed=1')}]"}
            given |= {"pace": "lockstep", "record": tmp_path / "run"} | options
            ours = {}
            for role in OURS:
                values = {key: value for key, value in given.items() if key != "record" or role == names.RECORDER}
                given_words = [word for key, value in values.items() for word in ("-p", f"{key}:={value}")]
                file = {outcomes.REPORT_FILE: str(tmp_path / role)} if launched else {}
                ours[role] = popen("-m", "rths_nodes.app.node", role, *IN_RIG, *given_words, **file)
            foreign = popen(*(words or (str(DRIVER), *map(str, driver))))
            if "silent" in driver:
                ours[names.MONITOR].wait(90)
                foreign.kill()
            try:
                ended = {role: (each.communicate(timeout=60)[1], each.returncode) for role, each in ours.items()}
            except subprocess.TimeoutExpired:
                for each in (foreign, *ours.values()):
                    each.kill()
                told = [text for each in (foreign, *ours.values()) for text in each.communicate()]
                pytest.fail("nobody ends:\n" + "\n".join(told))
            return SimpleNamespace(
                codes={role: code for role, (_, code) in ended.items()},
                errors={role: text for role, (text, _) in ended.items()},
                driver=foreign.communicate(timeout=30)[0],
                run=rths_nodes.read(tmp_path / "run"),
                left={role: outcomes.read_report(tmp_path / role) for role in OURS},
            )

        yield run


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the example package is, built and installed as anybody would."""
    place = tmp_path_factory.mktemp("example")
    source = shutil.copytree(EXAMPLE, place / "source")  # a build leaves files behind
    # --use-pep517: pip before 23.1 runs setup.py itself where wheel is missing, and --target loses the program
    words = ["install", "--quiet", "--use-pep517", "--no-index", "--no-build-isolation", "--no-deps"]
    command = [sys.executable, "-m", "pip", *words, "--target", place / "built", source]
    subprocess.run(command, check=True, capture_output=True, text=True)
    assert (place / "built" / "share" / "rths_example_driver" / "package.xml").is_file()
    return place / "built"


@pytest.mark.parametrize(
    ("override", "outcome"), [("seed=1", "finished"), ("axes.story_1.limits.force=10", "tripped")]
)
def test_the_example_of_a_driver_package_drives_a_test_and_stops_at_a_trip(
    rig: Any, example: Path, override: str, outcome: str
) -> None:
    program = str(example / "bin" / "driver")
    start = (
        f"import runpy, sys; sys.path.insert(0, {str(example)!r}); runpy.run_path({program!r}, None, '__main__')"
    )
    found = rig(words=["-c", start, *IN_RIG], override=override, launched=True)
    run, about = found.run, found.run.information
    # how launch ends: by what the recording says
    assert {role: (words.exit_code, words.problem) for role, words in found.left.items()} == dict.fromkeys(
        OURS, (0, "")
    )
    told = found.left[names.RECORDER]
    assert (ExitCode(told.test).outcome, about["reason"] in told.ending) == (outcome, True)
    assert set(found.codes.values()) == {0}, "launch would call every other code a death"
    assert found.left[names.MONITOR].indices["metrics.axes.story_1.max_error_m"] > 0.0
    assert (about["outcome"], about["gaps"], about["silent"]) == (outcome, "0", "")
    np.testing.assert_array_equal(run.force, 1e6 * run.displacement)
    if outcome == "finished":
        assert len(run.time) == SAMPLES + 1
        assert np.array_equal(run.displacement[1:], run.command[1:]), "its actuator follows at once"
        assert np.abs(run.displacement).max() > 1e-5
    else:
        assert not any("Traceback" in errors for errors in found.errors.values())
        assert "axes.story_1.limits.force: measured" in about["reason"]
        assert "continued after" not in about["reason"]
        assert run.flags[-1] & FLAG_TRIPPED
        assert run.displacement[-1] == run.displacement[-2], "at rest"
        assert np.abs(np.diff(run.displacement[:, 0], 2)).max() * 1024.0**2 <= 10.0


@pytest.mark.parametrize("pace", ["lockstep", pytest.param("realtime", marks=pytest.mark.soak)])
def test_a_driver_that_goes_on_after_a_breach_makes_a_tripped_test(rig: Any, pace: str) -> None:
    """Its load cell reports 1e12 N: no Command is made of that, and what it says in the end does not count."""
    found = rig(SAMPLES, BREACH, pace=pace)
    assert found.codes["compensator"] == found.codes["monitor"] == 3, found.errors
    assert found.codes["integrator"] == found.codes["recorder"] == 0
    why = "axes.story_1.limits.force: measured = 1e+12 N: must be within +- "
    assert f"compensator: {why}" in found.driver
    assert f"monitor: {why}" in found.driver
    assert mentions(found.driver, "commands", "breach")
    about = found.run.information
    assert about["outcome"] == "tripped"
    assert why in about["reason"]
    assert mentions(about["reason"], "continued", "Trip")
    assert len(found.run.time) == SAMPLES + 1, "it did"
    sent = found.run.command[1 : BREACH + 1]
    assert np.isfinite(sent).all()
    limits = files.load(NAME).axes["story_1"].limits
    assert np.abs(sent).max() <= limits.stroke
    for role, errors in found.errors.items():
        assert "Traceback" not in errors, role


def test_a_driver_that_ends_before_the_last_sample_makes_a_failed_test(rig: Any) -> None:
    found = rig(SAMPLES - 100, launched=True)
    about, told = found.run.information, found.left[names.RECORDER]
    why = about["reason"]
    assert about["outcome"] == "failed"
    assert mentions(why, "actuator", f"sample {SAMPLES - 100} of {SAMPLES}")
    assert told.test == 1
    assert mentions(told.ending, "failed", SAMPLES - 100, why)
    assert (found.left[names.MONITOR].exit_code, found.left[names.MONITOR].problem) == (1, why)


def test_a_driver_that_bridges_too_much_makes_a_test_that_is_not_valid(rig: Any) -> None:
    found = rig(SAMPLES, 0, "bridges", launched=True)
    monitor, recorder = found.left[names.MONITOR], found.left[names.RECORDER]
    assert (recorder.test, monitor.test) == (ExitCode.FINISHED, ExitCode.NOT_VALID), found.errors
    assert mentions(monitor.ending, SAMPLES, "25 % bridged", "2 %")
    assert mentions(monitor.late, SAMPLES // 4, "bridged")
    assert (found.run.information["outcome"], found.run.ending) == ("finished", found.run.not_valid)
    assert found.run.not_valid in monitor.ending


@pytest.mark.soak
def test_a_driver_that_obeys_trips_by_itself(rig: Any) -> None:
    found = rig(SAMPLES, BREACH, "obeys")
    about = found.run.information
    assert about["outcome"] == "tripped"
    assert "continued after" not in about["reason"]
    assert len(found.run.time) == BREACH + 2


@pytest.mark.soak
def test_a_driver_that_falls_silent_ends_the_test(rig: Any) -> None:
    found = rig(SAMPLES, 300, "silent", override="port.longest_wait=0.5")
    assert found.codes["monitor"] == 1
    assert "axes.story_1.limits.force" in found.errors["monitor"]


# -- the guard alone --------------------------------------------------------------------------------------


class Bench:
    def __init__(self, clock: Any) -> None:
        self.trips: list[tuple[str, int]] = []
        self.phase = PhaseMachine()
        self.clock = clock
        assembly = Assembly(files.load(NAME))
        self.limits = assembly.scenario.limits["story_1"]
        self.dt = assembly.scenario.dt
        self.patience = round(2e9 * assembly.scenario.port.longest_wait) + LATER_NS
        self.guard = DriverGuard(assembly, self.phase, lambda why, k, _: self.trips.append((why, k)), clock)
        self.guard.measurement(measured(0))


def measured(sample: int, displacement: float = 0.0, force: float = 0.0, **values: Any) -> Measurement:
    return Measurement(sample, np.array([displacement]), np.array([force]), np.zeros(1), **values)


def command(sample: int, value: float, target: float = 0.0) -> Command:
    return Command(sample, np.array([target]), np.array([value]))


@pytest.fixture
def bench(still_clock: Any) -> Bench:
    return Bench(still_clock)


@pytest.mark.parametrize(
    ("value", "target"),
    [(np.nan, 0.0), (np.inf, 0.0), (0.0, np.nan), (1.0, 0.0), (-1.0, 0.0), (0.01, 0.0)],
    ids=["nan", "inf", "target", "stroke", "other way", "velocity"],
)
def test_no_command_beyond_a_limit_passes_nor_any_after_it(bench: Bench, value: float, target: float) -> None:
    step = 0.5 * bench.limits.velocity * bench.dt
    assert bench.guard.command(command(1, step))
    assert not bench.guard.command(command(2, value, target))
    assert not bench.guard.command(command(3, step))
    ((why, sample),) = bench.trips
    assert ("axes.story_1" in why, sample) == (True, 2)


@pytest.mark.parametrize(
    "values",
    [
        {"force": 1e12},
        {"force": np.nan},
        {"displacement": 1.0},
        {"displacement": np.inf},
        {"interlock": INTERLOCK_OPEN},
    ],
)
def test_a_measurement_beyond_a_limit_trips_once(bench: Bench, values: dict[str, Any]) -> None:
    assert not bench.guard.measurement(measured(1, **values))
    assert not bench.guard.measurement(measured(2, **values))
    assert [sample for _, sample in bench.trips] == [1]
    assert not bench.guard.command(command(3, 0.0))


def test_what_our_actuator_node_has_judged_is_not_judged_again(bench: Bench) -> None:
    assert bench.guard.measurement(measured(1, force=1e12), judged=True)
    assert bench.trips == []
    assert not bench.guard.measurement(measured(2, force=1e12))
    assert not bench.guard.measurement(measured(3), judged=True), "nothing goes on after a breach"


def test_in_a_safe_stop_a_measurement_is_what_it_is(bench: Bench) -> None:
    assert bench.guard.measurement(measured(1, force=1e12, flags=FLAG_TRIPPED))
    assert bench.trips == []


@pytest.mark.parametrize(
    ("sample", "code"), [(SAMPLES_OF_ALL, 0), (SAMPLES_OF_ALL - 1, 1), (SAMPLES_OF_ALL + 1, 1)]
)
def test_a_test_that_is_called_finished_has_all_samples(bench: Bench, sample: int, code: int) -> None:
    bench.phase.follow(StateOfTest(State.FINISHED, sample))
    bench.guard.judge()
    assert (bench.phase.exit_code, f"sample {sample} of" in bench.phase.problem) == (code, bool(code))


@pytest.mark.parametrize(("state", "code"), [(State.FINISHED, 3), (State.TRIPPED, 0), (State.HELD, 0)])
def test_only_a_driver_that_went_on_is_judged(bench: Bench, state: State, code: int) -> None:
    bench.guard.measurement(measured(7, force=1e12))
    bench.phase.follow(StateOfTest(state, 100))
    bench.guard.judge()
    assert bench.phase.exit_code == code
    assert ("sample 7: axes.story_1.limits.force" in bench.phase.problem) == bool(code)


def test_a_driver_that_is_silent_trips_and_is_given_up(bench: Bench) -> None:
    bench.phase.follow(StateOfTest(State.RUNNING))
    bench.clock.now += bench.patience - 1
    assert not bench.guard.overdue()
    assert bench.trips == []
    bench.clock.now += 1
    assert not bench.guard.overdue()
    assert "no Measurement 1 for 12 s" in bench.trips[0][0]
    bench.clock.now += LATER_NS + 1
    assert bench.guard.overdue()
    bench.phase.follow(StateOfTest(State.FINISHED))
    assert not bench.guard.overdue()


@pytest.mark.parametrize(("lockstep", "effective"), [(True, 13), (False, 0)])
def test_a_trip_waits_for_a_sample_in_lockstep_only(lockstep: bool, effective: int) -> None:
    """In real time nobody waits: a driver of somebody else does at the effective sample what it is told."""
    told: list[dict[str, Any]] = []
    node: Any = SimpleNamespace(
        topics=SimpleNamespace(outlets=("trip",), publish=lambda topic, values: told.append(values)),
        settings=SimpleNamespace(lockstep=lockstep),
        identity=names.COMPENSATOR,
    )
    RthsNode.trip(node, "force", 4, 13)
    assert [values["effective_sample"] for values in told] == [effective]


def test_a_driver_that_knows_nothing_of_hops_is_tripped(still_clock: Any) -> None:
    trips: list[tuple[str, int, int]] = []
    assembly = Assembly(files.load(NAME, ["hops.depth=4"]))
    guard = DriverGuard(assembly, PhaseMachine(), lambda *told: trips.append(told), still_clock)
    guard.measurement(measured(0))
    k = 0
    while not trips and k < 50:
        k += 1
        assert guard.command(command(k, 1e-7 * k**2))
        shown = measured(k)
        shown.command = np.array([1e-7 * k**2])
        guard.measurement(shown)
    ((why, sample, effective),) = trips
    assert mentions(why, "hops.depth", "4", "32", "tick 32", "28")
    assert (sample, effective) == (32, 0)


def test_the_example_without_hops_is_tripped_where_there_are_some(rig: Any, example: Path) -> None:
    program = str(example / "bin" / "driver")
    start = (
        f"import runpy, sys; sys.path.insert(0, {str(example)!r}); runpy.run_path({program!r}, None, '__main__')"
    )
    found = rig(words=["-c", start, *IN_RIG], override="hops.depth=3", launched=True)
    assert found.run.information["outcome"] == "tripped"
    assert mentions(found.run.information["reason"], "knows", "hops")
    assert len(found.run.time) < SAMPLES
