# SPDX-License-Identifier: Apache-2.0
"""Tests of the loop over kernels: results equal those of the embedded loop to the bit, or it states a reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from shipped_cases import TRIPPING, WITHOUT_KERNELS, cases, loaded

from rths_nodes.app import hosts
from rths_nodes.app.studies import runs
from rths_nodes.core.samples import Measurement
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.compiled.running import CHUNK, KernelLoop, plain
from rths_nodes.loop.embedded import Loop, Outcome
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Collector, Run

Different = Callable[..., list[str]]
FIELDS = ("state", "reason", "samples", "metrics", "compensator", "failed", "integrator")


class FirstSample(Collector):
    """Collector that stores the sample of the ``first`` Measurement sent as a message."""

    first = 0

    def measurement(self, measured: Measurement) -> None:
        self.first = self.first or measured.sample
        super().measurement(measured)


def of_loop(scenario: Scenario, make: Callable[[Loop], Any] = lambda loop: loop) -> tuple[Outcome, Run, Any, int]:
    """Run the loop, which must report increasing samples."""
    loop, reported = make(Loop(Assembly(scenario))), list[int]()
    collector = FirstSample(scenario, loop.assembly.names)
    outcome = loop.run([collector], reported.append)
    assert reported == sorted(set(reported))
    return outcome, collector.run(metrics=outcome.metrics), loop, collector.first


def over_kernels(loop: Loop) -> KernelLoop:
    parts = parts_of(loop.assembly)
    assert isinstance(parts, Parts), parts
    return KernelLoop(loop, parts, plain(parts))


def check(scenario: Scenario, different: Different) -> tuple[Outcome, bool, int]:
    """Compare both loops; return the outcome, whether kernels computed it, and the first sample without them."""
    outcome, run, *_ = of_loop(scenario)
    by_kernels, run_by_kernels, loop, first = of_loop(scenario, over_kernels)
    for name in FIELDS:
        assert repr(getattr(by_kernels, name)) == repr(getattr(outcome, name))
    assert different(run_by_kernels, run) == []
    return outcome, loop.by_kernels, first


def load(text: str, *overrides: str) -> Scenario:
    """Load ``name override ...``, with ``overrides`` that it does not contain."""
    name, *parts = text.split()
    return files.load(name, [part.replace(":", ": ") for part in parts] + list(overrides))


@pytest.mark.parametrize("case", ["chen_ricles_2010", "rths_benchmark_2020 case_1", "phillips_spencer_2012 d"])
def test_kernels_give_bits_of_embedded_loop(case: str, different: Different) -> None:
    """Over more than one chunk."""
    outcome, by_kernels, _ = check(loaded(case, "duration=4.3"), different)
    assert outcome.state is State.FINISHED
    assert by_kernels


@pytest.mark.parametrize("case", sorted(cases()))
def test_shipped_cases_have_same_bits_or_a_reason(case: str, different: Different) -> None:
    scenario = loaded(case, "duration=2" if case in TRIPPING else "duration=1")
    if case in WITHOUT_KERNELS:
        assert parts_of(Assembly(scenario)) == WITHOUT_KERNELS[case]
    else:
        assert check(scenario, different)[1] is (case not in TRIPPING)


CHANGED = {
    "reads ahead": "chen_ricles_2010 compensator.lead=0.01",
    "slower rig": "chen_ricles_2010 time_ratio=3",
    "rig slower by a part": "chen_ricles_2010 time_ratio=1.7",
    "curved ramp": "chen_ricles_2010 ramp.type=hermite",
    "predicting ramp": "chen_ricles_2010 ramp.type=predictor_corrector",
    "forces led": "chen_ricles_2010 force_lead=0.002",
    "tracking error limited": "chen_ricles_2010 axes.story_1.limits.tracking_error=0.1",
    "coarse converters": "chen_ricles_2010 axes.story_1.output.resolution=1e-4 axes.story_1.output.range=0.2",
    "late forces": "chen_ricles_2010 axes.story_1.sensors.force_delay=12",
    "wrong sensors": "chen_ricles_2010 axes.story_1.sensors.force_scale=1.01 axes.story_1.sensors.force_delay=3",
    "transport": "phillips_spencer_2012 port.transport_samples=3",
    "hops": "chen_ricles_2010 hops.depth=5 ramp.type=hermite",
    "hops and transport": "phillips_spencer_2012 port.transport_samples=2 hops.depth=3",
    "hops to several axes": "three_independent_axes hops.depth=2",
    "hops, soft start": "chen_ricles_2010 hops.depth=2 soft_start={amplitude:0.002,duration:2.0}",
    "hops that trip": "chen_ricles_2010 hops.depth=12",
    "hops of a learning law": "rths_benchmark_2020 hops.depth=1",
    "hops to a coupled rig": "two_actuator_coupler hops.depth=2",
    "passive damper": "phillips_spencer_2012 semi_active={type:passive,voltage:1.0}",
    "random switching": "phillips_spencer_2012 semi_active={type:random_switching}",
    "no controller": "phillips_spencer_2012 semi_active=null",
    "soft start": "chen_ricles_2010 soft_start={amplitude:0.002,duration:2.0}",
    "soft start, many axes": "phillips_spencer_2012 soft_start={amplitude:0.0005,duration:2.0}",
    "chained": "chen_ricles_2010 compensator={type:chain,first:{type:discrete_model},second:{type:pi_lead}}",
    "chained, ahead": (
        "chen_ricles_2010 compensator={type:chain,lead:0.01,first:{type:discrete_model},second:{type:pi_lead}}"
    ),
    "linear": "chen_ricles_2010 compensator={type:linear,law:{D:[[1.0]]}}",
    "time series": "chen_ricles_2010 compensator={type:adaptive_time_series,delay:0.02}",
}


@pytest.mark.parametrize("case", CHANGED.values(), ids=CHANGED)
def test_optional_components_have_same_bits(case: str, different: Different) -> None:
    outcome, by_kernels, _ = check(load(case, "duration=1.5"), different)
    assert by_kernels is (outcome.state is State.FINISHED)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("chen_ricles_2010 axes.story_1.limits.velocity=0.01", "limits.velocity"),
        ("chen_ricles_2010 axes.story_1.limits.force=1e4", "limits.force"),
        ("chen_ricles_2010 axes.story_1.limits.tracking_error=1e-4", "limits.tracking_error"),
        ("chen_ricles_2010 monitor.energy_error_percent=0.01", "monitor.energy_error_percent"),
        ("chen_ricles_2010 structure.frequency=40 structure.restoring_force=null", ""),
    ],
)
def test_limit_trip_has_same_bits(case: str, reason: str, different: Different) -> None:
    outcome, by_kernels, _ = check(load(case, "duration=6"), different)
    if reason:
        assert outcome.state is State.TRIPPED
        assert reason in outcome.reason
        assert not by_kernels


TRIPS = {
    "command": "chen_ricles_2010 axes.story_1.limits.stroke=0.012",
    "measured": "chen_ricles_2010 axes.story_1.limits.force=9e4",
    "energy": "rths_benchmark_2020 monitor.energy_error_percent=0.1 duration=6",
    "force lead": "chen_ricles_2010 force_lead=0.002 axes.story_1.limits.force=9e4",
    "late forces": "chen_ricles_2010 axes.story_1.sensors.force_delay=12 axes.story_1.limits.force=9e4",
    "soft start": "chen_ricles_2010 soft_start={amplitude:0.002,duration:2.0} axes.story_1.limits.force=9e4",
    "slower rig": "chen_ricles_2010 time_ratio=3 axes.story_1.limits.force=9e4",
    "curved ramp": "chen_ricles_2010 ramp.type=hermite axes.story_1.limits.force=9e4",
    "axes": "phillips_spencer_2012 semi_active=null port.transport_samples=3 axes.floor_2.limits.velocity=0.09",
    "coupled rig": "marths_2023 axes.actuator_2.limits.tracking_error=2e-5",
    "unstable": "rths_benchmark_2020 compensator={type:none} duration=12",
}


@pytest.mark.parametrize("case", TRIPS.values(), ids=TRIPS)
def test_trip_is_computed_by_embedded_loop(case: str, different: Different) -> None:
    scenario = load(case, *([] if "duration" in case.split("=")[-2] else ["duration=4"]))
    outcome, _, first = check(scenario, different)
    assert outcome.state is State.TRIPPED
    tripped = int(re.findall(r"\d+", outcome.reason)[0])
    longest = scenario.samples_per_step + 2 + (CHUNK if "energy" in outcome.reason else 0)
    assert 0 <= tripped - first <= longest


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["port.trigger=true"], "port: the simulated"),
        (["axes.story_1.output.offset=0.001"], "port: the simulated"),
        (["monitor.tracking_indicator_rate=1"], "monitor.tracking_indicator_rate: "),
        (["axes.story_1.limits.levels.force={maximum: 1e6}"], "limits.levels: "),
    ],
)
def test_reason_names_unsupported_setting(overrides: list[str], reason: str) -> None:
    parts = parts_of(Assembly(files.load("chen_ricles_2010", overrides)))
    assert isinstance(parts, str)
    assert parts.startswith(reason)


class Messages:
    """Sink of all messages, in order."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        for kind in ("target", "command", "measurement", "truth"):
            setattr(self, kind, partial(self._add, kind))

    def _add(self, kind: str, message: Any) -> None:
        values = [getattr(message, name) for name in type(message).__slots__]
        plain = [value.tolist() if isinstance(value, np.ndarray) else value for value in values]
        self.received.append((kind, plain))

    def state(self, sample: int, values: Any) -> None:
        self.received.append(("state", sample, list(values)))


@pytest.mark.parametrize("case", ["chen_ricles_2010", "phillips_spencer_2012 d", "tadc_sine", TRIPS["soft start"]])
def test_sink_receives_same_messages_in_order(case: str) -> None:
    scenario = load(case, "duration=4") if "=" in case else loaded(case, "duration=0.5")
    expected, messages = Messages(), Messages()
    Loop(Assembly(scenario)).run([expected])
    over_kernels(Loop(Assembly(scenario))).run([messages])
    assert repr(messages.received) == repr(expected.received)


def test_loop_writes_into_histories_of_run() -> None:
    """They are columns of one table, without copies."""
    _, run, *_ = of_loop(files.load("rths_benchmark_2020", ["duration=3"]), over_kernels)
    assert run.displacement.base is not None
    for history in (run.force, run.true_displacement, run.true_force, run.target):
        assert history.base is run.displacement.base


SHORT = {
    "numbers on changes": "rths_benchmark_2020 duration=1",
    "numbers of three laws": "three_independent_axes soft_start=null duration=0.5",
    "soft start": "chen_ricles_2010 soft_start={amplitude:0.002,duration:2.0} duration=0.5",
}


@pytest.mark.parametrize("case", SHORT.values(), ids=SHORT)
def test_brief_histories_give_same_findings(case: str) -> None:
    full, brief = (runs.findings(load(case), lambda share: None, keep) for keep in (True, False))
    assert len(full.parameters) > 0
    for part in ("outcome", "axes", "metrics", "parameters", "measured", "published"):
        assert repr(getattr(brief, part)) == repr(getattr(full, part))


def test_brief_histories_are_small() -> None:
    scenario = files.load("rths_benchmark_2020", ["duration=0.5"])
    run = hosts.run(scenario, brief=True).read()
    assert run.dof_displacement.shape == (scenario.steps + 1, 3)
    assert run.dof_velocity.shape == run.restoring_force.shape == (0, 3)
    assert len(run.compensator) < len(run.time) / 10


def test_scenarios_of_one_kind_share_their_source() -> None:
    changes = ["axes.floor_1.actuator.a3=2.0", "axes.floor_1.specimen.specimen.stiffness=1.2e6"]
    (text,) = {
        parts_of(Assembly(files.load("rths_benchmark_2020", overrides))).text  # type: ignore[union-attr]
        for overrides in ([], changes)
    }
    assert "\nimport " in text


def test_interrupt_before_first_sample_holds() -> None:
    """As by Ctrl-C during the compilation; the test is shorter than a chunk."""
    scenario = files.load("chen_ricles_2010", ["duration=2"])
    expected = Loop(Assembly(scenario)).run(interrupted=lambda: True)
    outcome = over_kernels(Loop(Assembly(scenario))).run(interrupted=lambda: True)
    assert (outcome.state, outcome.samples, outcome.reason) == (State.HELD, expected.samples, expected.reason)
    assert expected.state is State.HELD
    assert 0 < outcome.samples < scenario.samples


def test_interrupted_run_is_held_and_kept() -> None:
    """Collectors and sinks of messages have the samples before it, as in the complete test."""
    scenario = files.load("chen_ricles_2010", ["duration=20"])
    _, complete, *_ = of_loop(scenario)
    loop, requests = over_kernels(Loop(Assembly(scenario))), iter([False, True])
    collector, messages = Collector(scenario, loop.assembly.names), Messages()
    outcome = loop.run([collector, messages], None, lambda: next(requests))
    run, last = collector.run(metrics=outcome.metrics), outcome.samples
    assert (outcome.state, outcome.reason) == (State.HELD, f"sample {last}: interrupted")
    assert 0 < last < scenario.samples
    assert len(run.time) == last + 1
    assert len(run.step_time) == -(-last // scenario.samples_per_step) + 1
    for name in ("target", "command", "displacement", "force", "true_displacement"):
        np.testing.assert_array_equal(getattr(run, name), getattr(complete, name)[: last + 1])
    assert np.array_equal(run.dof_displacement, complete.dof_displacement[: len(run.step_time)])
    assert np.isnan(run.compensator[-1]).all()
    counts = Counter(kind for kind, *_ in messages.received)
    assert (counts["measurement"], counts["state"]) == (last + 1, last)
