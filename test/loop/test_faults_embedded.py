# SPDX-License-Identifier: Apache-2.0
"""Tests of faults on the embedded host: cost of late samples, and nothing invalid reaches the rig."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from loop_parts import collected, simulate
from messages import mentions, naming

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED, Command, Measurement
from rths_nodes.loop.embedded import Loop, Outcome
from rths_nodes.loop.faults import (
    KINDS,
    NEED_NODES,
    STREAMS,
    Delay,
    FaultyLoop,
    FaultyStream,
    Slow,
    flip_bit,
    kind_of,
    parse,
    stream_of,
)
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision.bridges import MotionBridge
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Collector, Run

FIXED = ["compensator.alpha_es=27", "compensator.k_p_per_mm2=0"]
"""Without adaptation and slightly wrong: the tracking error is due to the compensator."""
CHEN, SINE = "chen_ricles_2010", "predefined_sine"


def run(name: str, overrides: Sequence[str], *faults: str) -> tuple[Outcome, Run, Loop]:
    loop = FaultyLoop(Assembly(files.load(name, overrides)), [parse(fault) for fault in faults])
    return *collected(loop), loop


@cache
def without_faults(name: str, overrides: tuple[str, ...]) -> Run:
    return run(name, overrides)[1]


def sent_values(loop: Loop) -> list[np.ndarray]:
    """Return the list to which the port of ``loop`` will append its commands and auxiliary inputs."""
    sent: list[np.ndarray] = []
    write = loop.rig.port.write

    def watched(command: Command) -> None:
        sent.append(np.concatenate((command.command, command.auxiliary)))
        write(command)

    loop.rig.port.write = watched
    return sent


def tracking(run: Run) -> np.ndarray:
    """Error norm of each axis, %."""
    error = np.square(run.target - run.true_displacement).sum(axis=0)
    return 100.0 * np.sqrt(error / np.square(run.target).sum(axis=0))


def response(run: Run, reference: Run, quantity: str = "dof_displacement") -> float:
    """The largest error norm of a quantity against the run without faults, %."""
    values, expected = getattr(run, quantity), getattr(reference, quantity)
    error = np.square(values - expected).sum(axis=0) / np.square(expected).sum(axis=0)
    return float((100.0 * np.sqrt(error)).max())


# Texts of faults


@pytest.mark.parametrize(
    ("text", "kind", "values"),
    [
        ("drop@2:target", "drop", {"time": 2.0, "stream": "target", "count": 1, "every": None}),
        ("delay@0.5:command,3,5,100", "delay", {"time": 0.5, "samples": 3, "count": 5, "every": 100}),
        ("late@0:target,0.05", "late", {"share": 0.05, "samples": 1}),
        ("nan@1:command,-inf,auxiliary", "nan", {"value": "-inf", "field": "auxiliary"}),
        ("slow@1:compensator,2e-3,5", "slow", {"node": "compensator", "seconds": 2e-3, "count": 5}),
        ("sensor_spike@1:story_1,force,-1e5", "sensor_spike", {"axis": "story_1", "size": -1e5}),
        ("sensor_stuck@1:story_1,force", "sensor_stuck", {"seconds": None}),
        ("kill@1.5:recorder", "kill", {"time": 1.5, "node": "recorder"}),
        ("disk_full@3", "disk_full", {"time": 3.0}),
    ],
)
def test_parse_fault(text: str, kind: str, values: dict[str, Any]) -> None:
    fault = parse(text)
    assert kind_of(fault) == kind
    assert {name: getattr(fault, name) for name in values} == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drop", ("KIND", "TIME", "ARGUMENTS", "corrupt", "delay", "disk_full", "drop")),
        ("dely@1:target,1", ("unknown", "dely", "delay", "corrupt")),
        ("delay@x:target,1", ("time", "x")),
        ("delay@-1:target,1", ("time", "-1 s", ">= 0 s")),
        ("delay@nan:target,1", ("time", "nan", "number")),
        ("delay@010:target,1", ("010", "0", "number")),
        ("delay@1:targt,1", ("stream", "unknown", "targt", "target", "command", "measurement")),
        ("delay@1", ("samples", "samples", "missing")),
        ("delay@1:target,0", ("samples", "0", ">= 1")),
        ("delay@1:target,1.5", ("samples", "1.5")),
        ("late@1:target,1.5", ("share", "1.5", "> 0", "<= 1")),
        ("nan@1:target,0", ("value", "unknown", "0", "-inf", "inf", "nan")),
        ("kill@1:compensatr", ("node", "unknown", "compensatr", "compensator")),
        ("disk_full@1:now", ("arguments", "disk_full", "TIME")),
    ],
)
def test_invalid_fault_is_refused(text: str, message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)) as refused:
        parse(text)
    assert all(problem.startswith(f"fault {text!r}: ") for problem in refused.value.problems)


EXAMPLES = {"kill": "recorder", "freeze": "monitor,0.1", "disk_full": ""}


def test_faults_of_nodes_are_refused() -> None:
    assert set(EXAMPLES) == {name for name, cls in KINDS.items() if cls in NEED_NODES}
    for kind, arguments in EXAMPLES.items():
        with pytest.raises(ConfigError, match=naming("fault", kind)):
            run(CHEN, ["duration=1"], f"{kind}@0.5:{arguments}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("delay@9:target,1", ("time", "9 s", "< 1.00586 s")),
        ("delay@0:measurement,1", ("fault", "delay", "measurements")),
        ("slow@0:actuator,1e-3", ("fault", "slow", "measurements")),
        ("nan@0:command,nan,velocity", ("unknown", "command", "velocity", "auxiliary", "target")),
        ("sensor_spike@0:story_2,force,1", ("sensor_spike", "unknown", "story_2", "story_1")),
    ],
)
def test_impossible_fault_is_refused(text: str, message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        run(CHEN, ["duration=1"], text)


def test_command_line_accepts_faults(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", CHEN, "--set", "duration=1", "--fault"]
    assert main([*command, "delay@0.2:target,5", "--fault", "delay@0.5:command,2"]) == 0
    capsys.readouterr()
    assert main([*command, "delay@0.5:command,50"]) == 3
    assert mentions(" ".join(capsys.readouterr().out.split()), "bridge.max_bridge", "10.7 ms")
    assert main([*command, "dely@1"]) == 2
    assert main([*command, "delay@0.5:target,5", "--host", "composed"]) == 2


def test_result_contains_bridges_and_faults() -> None:
    result = hosts.run(CHEN, ["duration=1"], faults=["delay@0.2:target,5"])
    assert result.timing["bridged"] == 5
    recording = result.read()
    assert recording.information["faults"] == "delay@0.2:target,5"
    assert np.count_nonzero(recording.flags & FLAG_BRIDGED) == 5


# Streams


def stream(*faults: str, seed: int = 1) -> FaultyStream[Any]:
    parsed = [parse(fault) for fault in faults]
    return FaultyStream("target", parsed, 100.0, seed, flip_bit, lambda message, value, field: value)


def through(faulty: FaultyStream[Any], messages: Sequence[Any]) -> list[list[Any]]:
    """Send one message per sample; return the messages received at each sample."""
    arrived = []
    for sample, message in enumerate(messages):
        faulty.put(sample, message)
        arrived.append(faulty.take(sample))
    return arrived


OF_STREAMS = ["drop", "delay", "late", "duplicate", "reorder", "corrupt", "nan"]
ONE_OF_EACH = [
    *(f"{kind}@0.1:{{0}}{',2' * (kind == 'delay')}{',0.5' * (kind == 'late')}" for kind in OF_STREAMS),
    *("slow@0.1:integrator,0.1", "kill@0.1:integrator", "freeze@0.1:integrator,0.1"),
    *("sensor_stuck@0.1:a,force", "sensor_spike@0.1:a,force,1"),
    *("hydraulics@0.1:off", "interlock@0.1"),
    "disk_full@0.1",
]


@pytest.mark.parametrize("name", STREAMS)
def test_all_faults_combine(name: str) -> None:
    """Faults of nodes and sensors do not affect a stream, not even faults of the node that sends it."""
    faults = [parse(fault.format(name)) for fault in ONE_OF_EACH]
    assert {type(fault) for fault in faults} == set(KINDS.values())
    of_streams = [fault for fault in faults if stream_of(fault) == name]
    assert len(of_streams) == (8 if name == "target" else 7)
    faulty = FaultyStream(name, faults, 100.0, 1, flip_bit, lambda message, value, field: message)
    arrived = through(faulty, [bytes([sample]) for sample in range(30)])
    assert arrived[:10] == [[bytes([sample])] for sample in range(10)]
    assert sum(map(len, arrived)) > 20


@pytest.mark.parametrize(
    ("fault", "arrived"),
    [
        ("drop@0.02:target", [[0], [1], [], [3], [4], [5]]),
        ("drop@0.01:target,1,2", [[0], [], [2], [], [4], []]),
        ("delay@0.02:target,2", [[0], [1], [], [], [2, 3, 4], [5]]),
        ("delay@0.01:target,1,2", [[0], [], [1], [2, 3], [4], [5]]),
        ("duplicate@0.03:target", [[0], [1], [2], [3, 3], [4], [5]]),
        ("reorder@0.01:target", [[0], [], [2, 1], [3], [4], [5]]),
        ("reorder@0.01:target,2", [[0], [], [2, 1], [], [4, 3], [5]]),
        ("slow@0.01:integrator,0.015", [[0], [], [], [1, 2, 3], [4], [5]]),
        ("drop@0.01:command", [[0], [1], [2], [3], [4], [5]]),
        ("nan@0.02:target,inf", [[0], [1], [math.inf], [3], [4], [5]]),
    ],
)
def test_messages_of_faulty_stream(fault: str, arrived: list[list[Any]]) -> None:
    assert through(stream(fault), range(6)) == arrived


def test_faults_of_one_message_combine() -> None:
    assert through(stream("duplicate@0.01:target", "delay@0.01:target,1"), range(3)) == [[0], [], [1, 1, 2]]


def test_random_share_depends_on_seed() -> None:
    def late(seed: int) -> list[int]:
        arrived = through(stream("late@0:target,0.05", seed=seed), range(4000))
        return [k for k, messages in enumerate(arrived) if not messages]

    assert late(1) == late(1) != late(2)
    assert len(late(1)) == pytest.approx(200, abs=50)


def test_corruption_flips_one_bit() -> None:
    (changed,) = through(stream("corrupt@0:target"), [bytes(100)])[0]
    assert (len(changed), sum(byte.bit_count() for byte in changed)) == (100, 1)


def test_slow_node_delays_by_whole_samples() -> None:
    assert [type(parse(text)) for text in ("slow@1:compensator,1e-3", "delay@1:command,2")] == [Slow, Delay]
    _, slow, _ = run(CHEN, ["duration=1"], "slow@0.5:compensator,1.5e-3,2")
    _, late, _ = run(CHEN, ["duration=1"], "delay@0.5:command,2,2")
    np.testing.assert_array_equal(slow.displacement, late.displacement)


# Cost of late samples


@pytest.mark.parametrize("name", [CHEN, "tadc_sine", "three_independent_axes"])
def test_run_without_faults_has_same_bits(name: str) -> None:
    outcome, result, loop = run(name, ["duration=0.5"])
    plain, reference = simulate(loop.scenario)
    assert plain.metrics == outcome.metrics or np.isnan(outcome.metrics["hsem_percent"])
    for array, values in result.arrays().items():
        np.testing.assert_array_equal(values, reference.arrays()[array])
    assert (loop.rig.bridged, loop.commands.bridged, loop.rig.late_commands) == (0, 0, 0)


CASES = {CHEN: ("duration=4", *FIXED), "phillips_spencer_2012": ("duration=0.5",)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "fault", ["late@0.05:target,0.05", "delay@0.05:target,1,5,100"], ids=["one of twenty", "five in a row"]
)
def test_late_targets_barely_change_the_response(case: str, fault: str) -> None:
    """Late by a sample: tracking within 1 %, response within 2 %."""
    reference = without_faults(case, CASES[case])
    outcome, late, loop = run(case, CASES[case], fault)
    assert outcome.state is State.FINISHED
    assert loop.rig.bridged == loop.commands.bridged > 10
    resolved = tracking(reference) > 1e-2  # excludes floors that follow to 0.001 %
    np.testing.assert_allclose(tracking(late)[resolved], tracking(reference)[resolved], rtol=0.01)
    np.testing.assert_allclose(tracking(late), tracking(reference), atol=0.02)
    for quantity in ("dof_displacement", "exact_acceleration", "true_force"):
        assert response(late, reference, quantity) < 2.0


def test_paused_adaptation_barely_changes_tracking() -> None:
    """The tracking indicator omits 2 of 200 samples, which makes the adaptive law 1 % slower."""
    reference = without_faults(CHEN, ("duration=4",))
    _, late, _ = run(CHEN, ("duration=4",), "late@0:target,0.05")
    assert tracking(late)[0] == pytest.approx(tracking(reference)[0], rel=0.02)
    assert response(late, reference) < 2.0


@pytest.mark.parametrize("case", CASES)
def test_gap_of_10_ms_is_bridged_50_ms_trips(case: str) -> None:
    reference = without_faults(case, CASES[case])
    rate = reference.scenario.servo_rate
    for samples in (math.floor(0.010 * rate), math.ceil(0.050 * rate)):
        outcome, late, loop = run(case, CASES[case], f"delay@0.3:target,{samples}")
        if samples < 0.02 * rate:
            assert outcome.state is State.FINISHED
            assert response(late, reference) < 2.0
        else:
            assert outcome.state is State.TRIPPED
            assert mentions(outcome.reason, "bridge.max_bridge", "10")
        assert loop.rig.bridged == math.floor(0.010 * rate)


def test_late_commands_are_bridged_in_the_rig_stage() -> None:
    reference = without_faults(CHEN, CASES[CHEN])
    _, late, loop = run(CHEN, CASES[CHEN], "late@0:command,0.05")
    assert loop.rig.bridged == loop.rig.late_commands > 150
    assert loop.commands.bridged == 0
    assert tracking(late)[0] == pytest.approx(tracking(reference)[0], rel=0.1)
    assert response(late, reference) < 2.0


def test_holding_is_worse_than_bridging(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop and a return amplified by the lead: a limit of the rig ends the test, or the error is large."""
    name, fault = "phillips_spencer_2012", "delay@0.1:target,5,5,100"
    reference = without_faults(name, CASES[name])
    _, bridged, _ = run(name, CASES[name], fault)

    def hold(self: MotionBridge, last: tuple[int, Any], sample: int) -> np.ndarray:
        return np.array([last[1][0], np.zeros_like(last[1][0]), np.zeros_like(last[1][0])])

    monkeypatch.setattr(MotionBridge, "_series", hold)
    outcome, held, _ = run(name, CASES[name], fault)
    n = min(len(held.target), len(reference.target))
    errors = [np.abs(run.true_displacement[:n] - reference.true_displacement[:n]).max() for run in (bridged, held)]
    assert outcome.state is State.TRIPPED or errors[1] > 20.0 * errors[0]


# Invalid values never reach the rig


FIELDS = {
    "target": ("displacement", "velocity", "acceleration"),
    "command": ("command", "target"),
    "measurement": ("displacement", "force"),
}
NON_FINITE = [(CHEN, message, field) for message, fields in FIELDS.items() for field in fields]
NON_FINITE += [("phillips_spencer_2012", message, "auxiliary") for message in FIELDS]


@pytest.mark.parametrize("value", ["nan", "inf", pytest.param("-inf", marks=pytest.mark.soak)])
@pytest.mark.parametrize(("name", "message", "field"), NON_FINITE)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_non_finite_values_trip_and_are_never_sent(name: str, message: str, field: str, value: str) -> None:
    loop = FaultyLoop(Assembly(files.load(name, ["duration=0.3"])), [parse(f"nan@0.2:{message},{value},{field}")])
    sent = sent_values(loop)
    outcome = loop.run()
    assert outcome.state is State.TRIPPED
    assert re.search("= -?(nan|inf)", outcome.reason)
    assert np.isfinite(sent).all()


FAULTS = [
    *("drop@0.3:target", "drop@0.3:command,2,40", "delay@0.3:target,8,3,20", "delay@0.3:command,8,3,60"),
    *("delay@0.3:target,60", "delay@0.3:command,60", "late@0:target,0.3,4", "late@0:command,0.1,2"),
    *("duplicate@0.3:target,5", "duplicate@0.3:command,5", "reorder@0.3:target", "reorder@0.3:command,3"),
    *("corrupt@0.1:target,20,2", "corrupt@0.1:command,20,2"),
    *("nan@0.3:target", "nan@0.3:command,inf", "nan@0.3:measurement"),
    *("slow@0.3:integrator,0.003,5", "slow@0.3:compensator,0.003,5"),
    *("sensor_stuck@0.3:story_1,displacement", "sensor_stuck@0.3:story_1,force,0.1"),
    *("sensor_spike@0.3:story_1,displacement,0.05", "sensor_spike@0.3:story_1,force,2e5"),
]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_faults_never_make_the_rig_jump(fault: str, seed: int) -> None:
    """Steps stay within the velocity limit; a test ends finished, or tripped and at rest."""
    loop = FaultyLoop(Assembly(files.load(CHEN, ["duration=0.8", f"seed={seed}"])), [parse(fault)])
    sent = sent_values(loop)
    outcome = loop.run()
    limits, dt = loop.scenario.axes["story_1"].limits, loop.scenario.dt
    commands = np.array([0.0, *(values.item() for values in sent)])
    steps = np.abs(np.diff(commands))
    assert np.isfinite(commands).all()
    assert steps.max() <= limits.velocity * dt * (1.0 + 1e-9)
    assert np.abs(commands).max() <= limits.stroke
    if outcome.state is State.TRIPPED:
        assert outcome.reason
    if outcome.state is State.TRIPPED and outcome.samples < loop.scenario.samples:  # else too late to stop
        assert steps[-1] <= limits.deceleration * dt**2 * (1.0 + 1e-6)
    assert outcome.state in (State.TRIPPED, State.FINISHED)


def test_lost_target_trips() -> None:
    outcome, result, _ = run(CHEN, ["duration=1"], "drop@0.5:target")
    assert outcome.state is State.TRIPPED
    assert "compensator: received Target 54, expected Target 53" in outcome.reason
    assert np.count_nonzero(result.flags & FLAG_TRIPPED) > 0


def test_lost_command_is_bridged() -> None:
    outcome, result, loop = run(CHEN, ["duration=1"], "drop@0.5:command,1,100")
    assert outcome.state is State.FINISHED
    assert loop.rig.bridged == np.count_nonzero(result.flags & FLAG_BRIDGED) == 6
    assert loop.rig.late_commands == 0


@pytest.mark.parametrize("channel", ["displacement", "force"])
def test_stuck_sensor_repeats_last_value(channel: str) -> None:
    _, result, _ = run(SINE, ["duration=1"], f"sensor_stuck@0.5:axis_1,{channel},0.01")
    measured, true = getattr(result, channel)[:, 0], getattr(result, f"true_{channel}")[:, 0]
    stuck = slice(512, 512 + 11)
    assert np.all(measured[stuck] == measured[511])
    assert np.ptp(true[stuck]) > 0.0
    np.testing.assert_array_equal(np.delete(measured, np.r_[stuck]), np.delete(true, np.r_[stuck]))


def test_spike_affects_one_sample() -> None:
    _, result, _ = run(SINE, ["duration=1"], "sensor_spike@0.5:axis_1,displacement,1e-4")
    difference = result.displacement[:, 0] - result.true_displacement[:, 0]
    assert np.flatnonzero(difference).tolist() == [512]
    assert difference[512] == pytest.approx(1e-4)


def test_replaced_command_is_not_flagged_as_bridged() -> None:
    scenario = files.load(CHEN)
    collector = Collector(scenario, Assembly(scenario).names)
    tripped, zero = 3, np.zeros(1)
    for sample in range(tripped + 1):
        flags = FLAG_TRIPPED if sample == tripped else FLAG_BRIDGED
        collector.command(Command(sample, zero, zero, flags=FLAG_BRIDGED))
        collector.measurement(Measurement(sample, zero, zero, zero, flags=flags))
    assert collector.run().flags.tolist() == [FLAG_BRIDGED] * tripped + [FLAG_TRIPPED]


def test_refused_command_is_not_recorded() -> None:
    """A finite but absurd Target gives a Command of 1e305 m, which is not sent."""
    outcome, result, loop = run(CHEN, ["duration=1", "seed=309"], "corrupt@0.275:target,3,87")
    assert outcome.state is State.TRIPPED
    assert mentions(outcome.reason, "command", "-2.11401e+305 m")
    (limits,) = loop.scenario.limits.values()
    assert np.abs(result.command).max() < limits.stroke
    assert np.abs(np.diff(result.command[:, 0])).max() <= limits.velocity * loop.scenario.dt
