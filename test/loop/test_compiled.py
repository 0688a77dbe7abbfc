# SPDX-License-Identifier: Apache-2.0
"""The loop over kernels gives what the embedded loop gives, to the bit, or says why it does not run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shipped_cases import TRIPPING, WITHOUT_KERNELS, cases, loaded

from rths_nodes.app import hosts
from rths_nodes.app.studies import runs
from rths_nodes.core.samples import Measurement
from rths_nodes.loop.compiled.history import CHUNK
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.compiled.running import KernelLoop, plain
from rths_nodes.loop.embedded import Loop, Outcome
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.run import Collector, Run

Different = Callable[..., list[str]]
TOLD = ("state", "reason", "samples", "metrics", "compensator", "failed", "integrator")


def of_loop(scenario: Scenario, make: Callable[[Loop], Any] = lambda loop: loop) -> tuple[Outcome, Run, Any]:
    loop = make(Loop(Assembly(scenario)))
    collector = Collector(scenario, loop.assembly.names)
    outcome = loop.run([collector])
    return outcome, collector.run(metrics=outcome.metrics), loop


def over_kernels(loop: Loop) -> KernelLoop:
    parts = parts_of(loop.assembly)
    assert isinstance(parts, Parts), parts
    return KernelLoop(loop, parts, plain(parts))


def told(outcome: Outcome) -> str:
    """Floats by their shortest digits, which are theirs alone."""
    return repr([getattr(outcome, name) for name in TOLD])


def check(scenario: Scenario, different: Different, by_kernels: bool = True) -> Outcome:
    outcome, run, _ = of_loop(scenario)
    again, run_again, loop = of_loop(scenario, over_kernels)
    assert loop.by_kernels is by_kernels
    assert told(again) == told(outcome)
    assert different(run_again, run) == []
    return outcome


@pytest.mark.parametrize("words", ["chen_ricles_2010", "rths_benchmark_2020 case_1", "phillips_spencer_2012 d"])
def test_it_gives_the_bits_of_the_embedded_loop(words: str, different: Different) -> None:
    """Over more than one chunk."""
    assert check(loaded(words, "duration=4.3"), different).state is State.FINISHED


@pytest.mark.parametrize("words", sorted(cases()))
def test_every_shipped_case_has_the_same_bits_or_a_reason(words: str, different: Different) -> None:
    scenario = loaded(words, "duration=2" if words in TRIPPING else "duration=1")
    parts = parts_of(Assembly(scenario))
    if words in WITHOUT_KERNELS:
        assert parts == WITHOUT_KERNELS[words]
    else:
        check(scenario, different, words not in TRIPPING)


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


@pytest.mark.parametrize("words", CHANGED.values(), ids=CHANGED)
def test_what_a_scenario_may_have_besides_gives_the_same_bits(words: str, different: Different) -> None:
    name, *overrides = words.split()
    scenario = files.load(name, [each.replace(":", ": ") for each in overrides] + ["duration=1.5"])
    again, run, loop = of_loop(scenario, over_kernels)
    outcome, expected, _ = of_loop(scenario)
    assert told(again) == told(outcome)
    assert different(run, expected) == []
    assert loop.by_kernels is (outcome.state is State.FINISHED)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("chen_ricles_2010 axes.story_1.limits.velocity=0.01", "limits.velocity"),
        ("chen_ricles_2010 axes.story_1.limits.force=1e4", "limits.force"),
        ("chen_ricles_2010 axes.story_1.limits.tracking_error=1e-4", "limits.tracking_error"),
        ("chen_ricles_2010 monitor.energy_error_percent=0.01", "monitor.energy_error_percent"),
        ("chen_ricles_2010 structure.frequency=40 structure.restoring_force=null", ""),
    ],
)
def test_a_test_that_breaks_a_limit_is_told_by_the_embedded_loop(
    words: str, reason: str, different: Different
) -> None:
    name, *overrides = words.split()
    scenario = files.load(name, [*overrides, "duration=6"])
    again, run, loop = of_loop(scenario, over_kernels)
    outcome, expected, _ = of_loop(scenario)
    assert told(again) == told(outcome)
    assert different(run, expected) == []
    if reason:
        assert outcome.state is State.TRIPPED
        assert reason in outcome.reason
        assert not loop.by_kernels


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


class Late(Collector):
    """Collector that knows the ``first`` Measurement of the embedded loop."""

    first = 0

    def measurement(self, measured: Measurement) -> None:
        self.first = self.first or measured.sample
        super().measurement(measured)


@pytest.mark.parametrize("words", TRIPS.values(), ids=TRIPS)
def test_a_trip_is_judged_by_the_embedded_loop_from_shortly_before(words: str, different: Different) -> None:
    name, *overrides = words.split()
    duration = [] if "duration" in words.split("=")[-2] else ["duration=4"]
    scenario = files.load(name, [each.replace(":", ": ") for each in overrides] + duration)
    outcome, expected, _ = of_loop(scenario)
    loop = over_kernels(Loop(Assembly(scenario)))
    collector = Late(scenario, loop.assembly.names)
    again = loop.run([collector])
    assert outcome.state is State.TRIPPED
    assert told(again) == told(outcome)
    assert different(collector.run(metrics=again.metrics), expected) == []
    reached = int(re.findall(r"\d+", outcome.reason)[0])
    judged = scenario.samples_per_step + 2 + (CHUNK if "energy" in outcome.reason else 0)
    assert 0 <= reached - collector.first <= judged


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["port.trigger=true"], "port: the simulated"),
        (["axes.story_1.output.offset=0.001"], "port: the simulated"),
        (["monitor.tracking_indicator_rate=1"], "monitor.tracking_indicator_rate: "),
        (["axes.story_1.limits.levels.force={maximum: 1e6}"], "limits.levels: "),
    ],
)
def test_what_does_not_run_so_says_why(overrides: list[str], reason: str) -> None:
    found = parts_of(Assembly(files.load("chen_ricles_2010", overrides)))
    assert isinstance(found, str)
    assert found.startswith(reason)


class Heard:
    """A sink that keeps what it is told, in order."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def target(self, target: Any) -> None:
        self.told.append(("target", self._of(target)))

    def command(self, command: Any) -> None:
        self.told.append(("command", self._of(command)))

    def measurement(self, measured: Any) -> None:
        self.told.append(("measurement", self._of(measured)))

    def truth(self, true: Any) -> None:
        self.told.append(("truth", self._of(true)))

    def state(self, sample: int, values: Any) -> None:
        self.told.append(("state", sample, list(values)))

    @staticmethod
    def _of(message: Any) -> list[Any]:
        values = [getattr(message, name) for name in type(message).__slots__]
        return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]


@pytest.mark.parametrize("words", ["chen_ricles_2010", "phillips_spencer_2012 d", "tadc_sine"])
def test_a_sink_hears_the_same_messages_in_the_same_order(words: str) -> None:
    scenario, heard = loaded(words, "duration=0.5"), (Heard(), Heard())
    Loop(Assembly(scenario)).run([heard[0]])
    over_kernels(Loop(Assembly(scenario))).run([heard[1]])
    assert repr(heard[1].told) == repr(heard[0].told)


def test_the_loop_writes_into_the_histories_of_the_test() -> None:
    """Its histories are columns of one table, without copies."""
    _, run, _ = of_loop(files.load("rths_benchmark_2020", ["duration=3"]), over_kernels)
    assert run.displacement.base is not None
    for history in (run.force, run.true_displacement, run.true_force, run.target):
        assert history.base is run.displacement.base


SHORT = {
    "numbers on changes": "rths_benchmark_2020 duration=1",
    "numbers of three laws": "three_independent_axes soft_start=null duration=0.5",
    "soft start": "chen_ricles_2010 soft_start={amplitude:0.002,duration:2.0} duration=0.5",
}


@pytest.mark.parametrize("words", SHORT.values(), ids=SHORT)
def test_brief_histories_give_the_same_findings(words: str) -> None:
    name, *overrides = words.split()
    scenario = files.load(name, [each.replace(":", ": ") for each in overrides])
    kept, brief = (runs.findings(scenario, lambda share: None, keep) for keep in (True, False))
    assert len(kept.parameters) > 0
    for part in ("outcome", "axes", "metrics", "parameters", "measured", "published"):
        assert repr(getattr(brief, part)) == repr(getattr(kept, part))


def test_brief_histories_hold_a_fraction_of_the_numbers() -> None:
    scenario = files.load("rths_benchmark_2020", ["duration=0.5"])
    run = hosts.run(scenario, brief=True).read()
    assert run.dof_displacement.shape == (scenario.steps + 1, 3)
    assert run.dof_velocity.shape == run.restoring_force.shape == (0, 3)
    assert len(run.compensator) < len(run.time) / 10


def test_scenarios_of_a_kind_share_their_text() -> None:
    found = [
        parts_of(Assembly(files.load("rths_benchmark_2020", overrides)))
        for overrides in ([], ["axes.floor_1.actuator.a3=2.0", "axes.floor_1.specimen.specimen.stiffness=1.2e6"])
    ]
    assert len({parts.text for parts in found if isinstance(parts, Parts)}) == 1
    assert "\nimport " in found[0].text  # type: ignore[union-attr]


def test_an_interrupt_before_the_first_sample_holds_a_short_test() -> None:
    """As a Ctrl-C during the compilation does; the test is shorter than a chunk."""
    scenario = files.load("chen_ricles_2010", ["duration=2"])
    plain, quick = (
        loop.run(interrupted=lambda: True)
        for loop in (Loop(Assembly(scenario)), over_kernels(Loop(Assembly(scenario))))
    )
    assert (quick.state, quick.samples, quick.reason) == (plain.state, plain.samples, plain.reason)
    assert quick.state is State.HELD
    assert 0 < quick.samples < scenario.samples


def test_who_interrupts_finds_the_test_held() -> None:
    """What came before is there, as in the test that went on; sinks with messages hear it, too."""
    scenario = files.load("chen_ricles_2010", ["duration=20"])
    _, whole, _ = of_loop(scenario)
    loop, asked = over_kernels(Loop(Assembly(scenario))), iter([False, True])
    collector, heard = Collector(scenario, loop.assembly.names), Heard()
    outcome = loop.run([collector, heard], None, lambda: next(asked))
    run, last = collector.run(metrics=outcome.metrics), outcome.samples
    assert (outcome.state, outcome.reason) == (State.HELD, f"sample {last}: interrupted")
    assert 0 < last < scenario.samples
    assert len(run.time) == last + 1
    assert len(run.step_time) == -(-last // scenario.samples_per_step) + 1
    for name in ("target", "command", "displacement", "force", "true_displacement"):
        assert np.array_equal(getattr(run, name), getattr(whole, name)[: last + 1], equal_nan=True)
    steps = len(run.step_time)
    assert np.array_equal(run.dof_displacement, whole.dof_displacement[:steps])
    assert np.isnan(run.compensator[-1]).all()
    assert [name for name, *_ in heard.told].count("measurement") == last + 1
    assert [name for name, *_ in heard.told].count("state") == last
