# SPDX-License-Identifier: Apache-2.0
"""Third-party driver node in its own process: the nodes of this package check the limits."""

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
from programs import begun

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
from rths_nodes.ros.nodes.monitor import LATER_NS, DriverGuard
from rths_nodes.ros.nodes.participation import PhaseMachine, StateOfTest

NAME = "chen_ricles_2010"
DRIVER = Path(__file__).with_name("foreign_driver.py")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "driver_node"
PEERS = [peer for peer in names.NODES if peer != names.ACTUATOR]
IN_RIG = ("--ros-args", "-r", f"__ns:=/{names.NAMESPACE}")
SAMPLES = files.load(NAME, ["duration=1"]).samples
SAMPLES_OF_ALL = files.load(NAME).samples
BREACH = 500


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Runs a test with a process per node and a foreign driver; returns exit codes, reports and the recording."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with ExitStack() as stack:

        def popen(*arguments: str, **variables: str) -> subprocess.Popen[str]:
            process = begun([sys.executable, *arguments], env=environment | variables)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        def run(*driver: object, program: Sequence[str] = (), launched: bool = False, **options: object) -> Any:
            parameters = {"scenario": NAME, "overrides": f"[duration=1, {options.pop('override', 'seed=1')}]"}
            parameters |= {"pace": "lockstep"} | options
            nodes = {}
            for role in PEERS:
                values = parameters | ({"record": tmp_path / "run"} if role == names.RECORDER else {})
                arguments = [part for key, value in values.items() for part in ("-p", f"{key}:={value}")]
                file = {outcomes.REPORT_FILE: str(tmp_path / role)} if launched else {}
                nodes[role] = popen("-m", "rths_nodes.app.node", role, *IN_RIG, *arguments, **file)
            foreign = popen(*(program or (str(DRIVER), *map(str, driver))))
            if "silent" in driver:
                nodes[names.MONITOR].wait(90)
                foreign.kill()
            try:
                errors = {role: node.communicate(timeout=60)[1] for role, node in nodes.items()}
            except subprocess.TimeoutExpired:
                for process in (foreign, *nodes.values()):
                    process.kill()
                output = [text for process in (foreign, *nodes.values()) for text in process.communicate()]
                pytest.fail("no node exits:\n" + "\n".join(output))
            assert not any("Traceback" in text for text in errors.values()), errors
            return SimpleNamespace(
                codes={role: node.returncode for role, node in nodes.items()},
                errors=errors,
                driver=foreign.communicate(timeout=30)[0],
                run=rths_nodes.read(tmp_path / "run"),
                reports={role: outcomes.read_report(tmp_path / role) for role in PEERS},
            )

        yield run


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Arguments of Python that start the driver of the example package, which is built and installed by pip."""
    folder = tmp_path_factory.mktemp("example")
    source = shutil.copytree(EXAMPLE, folder / "source")  # a build leaves files behind
    # --use-pep517: pip before 23.1 runs setup.py itself where wheel is missing, and --target loses the program
    options = ["--quiet", "--use-pep517", "--no-index", "--no-build-isolation", "--no-deps"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", folder / "built", source]
    subprocess.run(command, check=True, capture_output=True, text=True)
    assert (folder / "built" / "share" / "rths_example_driver" / "package.xml").is_file()
    package, program = str(folder / "built"), str(folder / "built" / "bin" / "driver")
    start = f"import runpy, sys; sys.path.insert(0, {package!r}); runpy.run_path({program!r}, None, '__main__')"
    return ["-c", start, *IN_RIG]


@pytest.mark.parametrize(
    ("override", "outcome"), [("seed=1", "finished"), ("axes.story_1.limits.force=10", "tripped")]
)
def test_example_driver_runs_a_test_and_stops_at_a_trip(
    rig: Any, example: list[str], override: str, outcome: str
) -> None:
    test = rig(program=example, override=override, launched=True)
    run, information = test.run, test.run.information
    # under launch, the outcome is in the reports, not in the exit codes
    reports = {role: (report.exit_code, report.problem) for role, report in test.reports.items()}
    assert reports == dict.fromkeys(PEERS, (0, ""))
    recorder = test.reports[names.RECORDER]
    assert (ExitCode(recorder.test).outcome, information["reason"] in recorder.ending) == (outcome, True)
    assert set(test.codes.values()) == {0}, "launch reports any other code as a death"
    assert test.reports[names.MONITOR].indices["metrics.axes.story_1.max_error_m"] > 0.0
    assert (information["outcome"], information["gaps"], information["silent"]) == (outcome, "0", "")
    np.testing.assert_array_equal(run.force, 1e6 * run.displacement)
    if outcome == "finished":
        assert len(run.time) == SAMPLES + 1
        assert np.array_equal(run.displacement[1:], run.command[1:]), "its actuator follows immediately"
        assert np.abs(run.displacement).max() > 1e-5
    else:
        assert "axes.story_1.limits.force: measured" in information["reason"]
        assert "continued after" not in information["reason"]
        assert run.flags[-1] & FLAG_TRIPPED
        assert run.displacement[-1] == run.displacement[-2], "not at rest"
        assert np.abs(np.diff(run.displacement[:, 0], 2)).max() * 1024.0**2 <= 10.0


@pytest.mark.parametrize("pace", ["lockstep", pytest.param("realtime", marks=pytest.mark.soak)])
def test_driver_that_continues_after_a_breach_trips_the_test(rig: Any, pace: str) -> None:
    """Its load cell reports 1e12 N: no Command is computed from that, and its outcome is ignored."""
    test = rig(SAMPLES, BREACH, pace=pace)
    assert test.codes["compensator"] == test.codes["monitor"] == 3, test.errors
    assert test.codes["integrator"] == test.codes["recorder"] == 0
    reason = "axes.story_1.limits.force: measured = 1e+12 N: must be within +- "
    assert f"compensator: {reason}" in test.driver
    assert f"monitor: {reason}" in test.driver
    assert mentions(test.driver, "commands", "breach")
    information = test.run.information
    assert information["outcome"] == "tripped"
    assert mentions(information["reason"], reason, "continued", "Trip")
    assert len(test.run.time) == SAMPLES + 1, "the driver did not continue"
    sent = test.run.command[1 : BREACH + 1]
    assert np.isfinite(sent).all()
    assert np.abs(sent).max() <= files.load(NAME).axes["story_1"].limits.stroke


def test_driver_that_ends_early_fails_the_test(rig: Any) -> None:
    test = rig(SAMPLES - 100, launched=True)
    recorder, monitor = test.reports[names.RECORDER], test.reports[names.MONITOR]
    reason = test.run.information["reason"]
    assert test.run.information["outcome"] == "failed"
    assert mentions(reason, "actuator", f"sample {SAMPLES - 100} of {SAMPLES}")
    assert recorder.test == 1
    assert mentions(recorder.ending, "failed", SAMPLES - 100, reason)
    assert (monitor.exit_code, monitor.problem) == (1, reason)


def test_driver_that_bridges_too_much_makes_the_test_not_valid(rig: Any) -> None:
    test = rig(SAMPLES, 0, "bridges", launched=True)
    recorder, monitor = test.reports[names.RECORDER], test.reports[names.MONITOR]
    assert (recorder.test, monitor.test) == (ExitCode.FINISHED, ExitCode.NOT_VALID), test.errors
    assert mentions(monitor.ending, SAMPLES, "25 % bridged", "2 %")
    assert mentions(monitor.late, SAMPLES // 4, "bridged")
    assert (test.run.information["outcome"], test.run.ending) == ("finished", test.run.not_valid)
    assert test.run.not_valid in monitor.ending


@pytest.mark.soak
def test_driver_that_obeys_trips_the_test(rig: Any) -> None:
    run = rig(SAMPLES, BREACH, "obeys").run
    assert run.information["outcome"] == "tripped"
    assert "continued after" not in run.information["reason"]
    assert len(run.time) == BREACH + 2


@pytest.mark.soak
def test_driver_that_becomes_silent_ends_the_test(rig: Any) -> None:
    test = rig(SAMPLES, 300, "silent", override="port.longest_wait=0.5")
    assert test.codes["monitor"] == 1
    assert "axes.story_1.limits.force" in test.errors["monitor"]


def test_example_driver_without_hops_trips_a_test_with_hops(rig: Any, example: list[str]) -> None:
    run = rig(program=example, override="hops.depth=3", launched=True).run
    assert run.information["outcome"] == "tripped"
    assert mentions(run.information["reason"], "knows", "hops")
    assert len(run.time) < SAMPLES


# Guard without nodes


class Bench:
    """The guard after Measurement 0, and the trips that it has caused."""

    def __init__(self, clock: Any, *overrides: str) -> None:
        self.trips: list[tuple[str, int, int]] = []
        self.phase, self.clock = PhaseMachine(), clock
        assembly = Assembly(files.load(NAME, overrides))
        self.limits, self.dt = assembly.scenario.limits["story_1"], assembly.scenario.dt
        self.patience = round(2e9 * assembly.scenario.port.longest_wait) + LATER_NS
        self.guard = DriverGuard(assembly, self.phase, lambda *trip: self.trips.append(trip), clock)
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
def test_command_beyond_a_limit_blocks_all_later_ones(bench: Bench, value: float, target: float) -> None:
    step = 0.5 * bench.limits.velocity * bench.dt
    assert bench.guard.command(command(1, step))
    assert not bench.guard.command(command(2, value, target))
    assert not bench.guard.command(command(3, step))
    ((reason, sample, _),) = bench.trips
    assert ("axes.story_1" in reason, sample) == (True, 2)


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
def test_measurement_beyond_a_limit_trips_once(bench: Bench, values: dict[str, Any]) -> None:
    assert not bench.guard.measurement(measured(1, **values))
    assert not bench.guard.measurement(measured(2, **values))
    assert [sample for _, sample, _ in bench.trips] == [1]
    assert not bench.guard.command(command(3, 0.0))


def test_measurement_checked_by_actuator_node_is_not_checked_again(bench: Bench) -> None:
    assert bench.guard.measurement(measured(1, force=1e12), judged=True)
    assert bench.trips == []
    assert not bench.guard.measurement(measured(2, force=1e12))
    assert not bench.guard.measurement(measured(3), judged=True), "the test must not continue after a breach"


def test_measurement_in_a_safe_stop_is_not_checked(bench: Bench) -> None:
    assert bench.guard.measurement(measured(1, force=1e12, flags=FLAG_TRIPPED))
    assert bench.trips == []


@pytest.mark.parametrize(
    ("sample", "code"), [(SAMPLES_OF_ALL, 0), (SAMPLES_OF_ALL - 1, 1), (SAMPLES_OF_ALL + 1, 1)]
)
def test_finished_test_must_have_all_samples(bench: Bench, sample: int, code: int) -> None:
    bench.phase.follow(StateOfTest(State.FINISHED, sample))
    bench.guard.judge()
    assert (bench.phase.exit_code, f"sample {sample} of" in bench.phase.problem) == (code, bool(code))


@pytest.mark.parametrize(("state", "code"), [(State.FINISHED, 3), (State.TRIPPED, 0), (State.HELD, 0)])
def test_only_a_driver_that_continued_is_reported(bench: Bench, state: State, code: int) -> None:
    bench.guard.measurement(measured(7, force=1e12))
    bench.phase.follow(StateOfTest(state, 100))
    bench.guard.judge()
    assert bench.phase.exit_code == code
    assert ("sample 7: axes.story_1.limits.force" in bench.phase.problem) == bool(code)


def test_silent_driver_trips_and_is_given_up(bench: Bench) -> None:
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
def test_trip_has_effective_sample_only_in_lockstep(lockstep: bool, effective: int) -> None:
    """In real time no node waits, and a foreign driver would delay its stop until the effective sample."""
    trips: list[dict[str, Any]] = []
    node: Any = SimpleNamespace(
        topics=SimpleNamespace(outlets=("trip",), publish=lambda topic, values: trips.append(values)),
        settings=SimpleNamespace(lockstep=lockstep),
        identity=names.COMPENSATOR,
    )
    RthsNode.trip(node, "force", 4, 13)
    assert [values["effective_sample"] for values in trips] == [effective]


def test_driver_without_hops_is_detected(still_clock: Any) -> None:
    bench, k = Bench(still_clock, "hops.depth=4"), 0
    while not bench.trips and k < 50:
        k += 1
        assert bench.guard.command(command(k, 1e-7 * k**2))
        measurement = measured(k)
        measurement.command = np.array([1e-7 * k**2])
        bench.guard.measurement(measurement)
    ((reason, sample, effective),) = bench.trips
    assert mentions(reason, "hops.depth", "4", "32", "tick 32", "28")
    assert (sample, effective) == (32, 0)
