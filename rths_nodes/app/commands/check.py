# SPDX-License-Identifier: Apache-2.0
"""``rths check``: check a scenario without running it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import cache, partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from rths_nodes.analysis.cautions import judged_margin, of_margin
from rths_nodes.analysis.tested import Margins, RoundTrips, of_recording
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ComponentError, ConfigError, IntegratorError
from rths_nodes.laboratory.corrections import corrections_in_words
from rths_nodes.laboratory.ports.around import PortBefore
from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import Copies
from rths_nodes.loop.stages.learning_notes import learning_notes
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.arming import FULL
from rths_nodes.recording import commissioning

if TYPE_CHECKING:
    from rths_nodes.laboratory.calibration import Channel

REHEARSED_S = 2.0
"""Computing time of the simulated test, s; the output states how much of the test that was."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_scenario(parser)
    parser.add_argument(
        "--hops",
        metavar="RECORDING",
        help="a test that ran in real time over the hops to the rig: say which hops.depth they need",
    )


def run(options: argparse.Namespace) -> int:
    """Build the loop and describe it; a model in a process of its own is tried. Raises ConfigError."""
    from rths_nodes.loop.embedded import checked_loop

    loaded = arguments.scenario(options)
    measured = _round_trips(options.hops) if options.hops else None
    port = NeverOpened(Assembly(loaded).port) if options.rig else None  # an operator drives it: rths test
    assembly = checked_loop(loaded, port=port).assembly
    terminal.say(f"{loaded.name}: fits together")
    rehearsed = cache(partial(_rehearsed, loaded))
    for words in _told(loaded, assembly, options.rig, rehearsed):
        terminal.say(f"  {words}")
    for words in _hops(loaded, measured, rehearsed) if measured else ():
        terminal.say(f"  {words}")
    return 0


def _told(loaded: Scenario, assembly: Assembly, rig: str, rehearsed: Rehearsals) -> Iterator[str]:
    from rths_nodes.analysis import tested

    slower = f", {loaded.time_ratio:g} times slower" if loaded.time_ratio > 1 else ""
    each, dof = loaded.samples_per_step, len(assembly.names.model)
    yield (
        f"{loaded.steps} steps of {each} sample{'s'[: each > 1]} at {loaded.servo_rate:g} Hz: "
        f"{loaded.samples} samples, {loaded.samples * loaded.dt:.6g} s{slower}"
    )
    yield f"{dof} degree{'s'[: dof > 1]} of freedom, axes: {', '.join(loaded.axes)}"
    if not assembly.observation.whole:
        beside = ", ".join(loaded.observed) or "none"
        yield f"interface: {', '.join(loaded.interface)}; observed beside: {beside}"
    yield from _rig(loaded)
    yield from _reduction(assembly)
    yield from tested.described(assembly)
    yield from _contents(loaded)
    if (structure := assembly.full_structure) is not None:
        largest = float(abs(assembly.ground_acceleration).max() * abs(structure.ground_load).max())
        yield f"largest external force {largest / 1e3:.4g} kN"
    if loaded.soft_start:
        yield f"soft start: {loaded.soft_start_steps} of the steps, {loaded.soft_start.total:.4g} s"
    if loaded.cases:
        yield f"cases: {', '.join(loaded.cases)}"
    yield from _step_times(assembly)
    yield from _loads(loaded)
    yield from _excess_travel(loaded)
    yield from _margins(loaded, rehearsed(loaded.hops.depth))
    yield from _learning(loaded, rehearsed(loaded.hops.depth))
    margin, reason = judged_margin(loaded)
    if loaded.structure is not None:
        yield f"stability: {margin or f'not judged: {reason}'}"
    for caution in (*judgement.cautions(loaded, assembly.port.simulated), *of_margin(margin)):
        yield f"caution: {caution}"
    yield from _commissioned(loaded, rig)


def _learning(loaded: Scenario, rehearsed: Rehearsed | None) -> Iterator[str]:
    if loaded.updating is None:
        return
    from rths_nodes.analysis.stability.corners import refuse_unstable

    copies = Copies(loaded)
    yield (
        f"updating: {', '.join(copies.laws)} learn from {loaded.updating.axis} ({loaded.updating.mode}), a sample "
        f"every {1e3 * copies.settings.period:.3g} ms"
    )
    refuse_unstable(loaded)
    if rehearsed is not None:
        where = f"on a simulator in {rehearsed.margins.samples * loaded.dt:.3g} s"
        for words in learning_notes(rehearsed.integrator, loaded):
            yield f"{where}: {words}"


class NeverOpened(PortBefore):
    """``port`` that is never opened: it may belong to a real rig that is not armed."""

    armed = True

    def open(self, pacer: object = None) -> None:
        raise RuntimeError("the port of a check is never opened")


def _commissioned(loaded: Scenario, rig: str) -> Iterator[str]:
    found, barred = commissioning.found(loaded, rig)
    if barred:
        yield f"caution: {barred}"
    elif found is not None:
        yield f"commissioned {found.date} by {found.operator} and {found.second_person}"


def _rig(loaded: Scenario) -> Iterator[str]:
    if loaded.rig_file is None:
        return
    yield f"rig: {loaded.rig_file.name}, behind the port {type(loaded.port).type_name}"
    if loaded.rig_file.two_persons:
        yield f"two_persons: rung {FULL} asks for the names of the operator and of a second person"
    for name, axis in loaded.axes.items():
        mine: Any = axis.rig_axis
        told = [_channel(noun, getattr(mine, noun)) for noun in ("displacement", "force", "command")]
        scale = mine.similitude
        if (scale.length, scale.force) != (1.0, 1.0):
            told.append(f"structure/specimen {scale.length:g} in length, {scale.force:g} in force")
        told += corrections_in_words(mine, simulated=loaded.port.builds_axes)
        yield f"axes.{name}: is {mine.name}; {'; '.join(told)}"
    for name, channel in loaded.rig_file.auxiliary.items():
        yield _channel(name, channel)


def _channel(noun: str, channel: Channel) -> str:
    scale = f"{channel.sign * channel.scale:g} {channel.unit} per unit of the signal"
    words = f"{noun} +- {channel.range:g} {channel.unit}, {scale}"
    return f"{words}, calibrated {channel.calibrated}" if channel.calibrated else words


def _reduction(assembly: Assembly) -> Iterator[str]:
    from rths_nodes.numerical.reductions import FREQUENCIES, Reduced, differences

    model: Any = assembly.structure
    scenario = assembly.scenario
    if not isinstance(model, Reduced):
        return
    places = [model.full.names.index(name) for name in scenario.interface]
    frequency, static, compliance = differences(model, places, scenario.reduction.band)
    yield (
        f"reduction {type(scenario.reduction).type_name}: {len(model.full.names)} -> {len(model.names)} degrees "
        f"of freedom; against the full model: the {FREQUENCIES} lowest natural frequencies within "
        f"{100 * frequency:.2g} %, compliance of the interface within {100 * static:.2g} % (static) and "
        f"{100 * compliance:.2g} % of its largest (up to {scenario.reduction.band:g} Hz)"
    )


def _contents(loaded: Scenario) -> Iterator[str]:
    for place, part, _ in loaded.parts():
        for words in part.contents():
            yield f"{place}: {words}"


def _step_times(assembly: Assembly) -> Iterator[str]:
    """Describe the step times of parts in processes of their own, which are started for that."""
    from rths_nodes.analysis.tested import judged, quantiles

    try:
        took = assembly.integrator.rehearsed()
        of_compensator = assembly.compensator.rehearsed()
    except IntegratorError as error:
        raise ConfigError(f"integrator: {error}") from error
    except ComponentError as error:
        raise ConfigError(str(error)) from error
    if len(took):
        yield from judged(assembly.scenario, assembly.ramp.predicted, took)
    if len(of_compensator):
        sample = f"{1e3 * assembly.scenario.dt:.3g} ms"
        yield f"compensator: of a sample of {sample} it takes {quantiles(of_compensator)}"


def _loads(loaded: Scenario) -> Iterator[str]:
    for name in loaded.force_axes:
        axis: Any = loaded.axes[name]
        load, control = axis.own_load, axis.force_control
        yield (
            f"axes.{name}: held for {load.held_for:g} s, then controlled by force up to "
            f"{abs(load.largest) * 1e-3:g} kN{', vertical' * load.vertical}; "
            f"{type(control.law).type_name} of the {control.closed_by}; held where it is when "
            f"{1e3 * control.largest_correction:g} mm do not bring the force"
        )


def _excess_travel(loaded: Scenario) -> Iterator[str]:
    """Describe how much further the command of each axis may move after a loss of data."""
    from rths_nodes.core.braking import braked_together
    from rths_nodes.loop.supervision.pause import SHARPEST
    from rths_nodes.loop.supervision.safe_stop import braking_time, excess_travel

    names, transport = list(loaded.limits), loaded.port.transport_samples * loaded.dt
    bridge, on_the_way = loaded.bridge.max_bridge, f" and {1e3 * transport:.3g} ms on the way" if transport else ""
    sharpest = SHARPEST if loaded.bridge.pauses else 1.0
    for group in braked_together(loaded.limits.values(), loaded.stop_groups):
        members = {names[axis]: loaded.limits[names[axis]] for axis in group}
        time = braking_time(members.values())
        for name, limits in members.items():
            if limits.of_force:
                continue
            travel = excess_travel(limits, bridge + transport, sharpest, time)
            yield (
                f"axes.{name}: after a failure the command moves at most {1e3 * travel:.3g} mm further "
                f"({1e3 * bridge:g} ms bridged{on_the_way} at {limits.velocity:g} m/s, then braking at "
                f"{limits.velocity / time:.4g} m/s^2); the actuator moves further by its own lag"
            )
        if len(members) > 1:
            yield f"axes {' and '.join(members)} stop together, in at most {time:.3g} s"


def _round_trips(recording: str) -> RoundTrips:
    from rths_nodes.recording.reading import read_run

    try:
        return of_recording(read_run(recording))
    except ConfigError as error:
        raise error.within(f"--hops {recording}") from None


def _hops(loaded: Scenario, found: RoundTrips, rehearsed: Rehearsals) -> Iterator[str]:
    """Describe the depth of hops for measured round trips, and its cost in a simulated test."""
    depth = found.depth(loaded.dt)
    yield (
        f"hops: a Command is there {1e3 * found.p999:.4g} ms after its Measurement in 99.9 % of the samples, "
        f"{1e3 * found.longest:.4g} ms at most: hops.depth = {depth} is needed, {loaded.hops.depth} declared"
    )
    for each in sorted({0, loaded.hops.depth, depth}):
        try:
            test = rehearsed(each)
        except ConfigError as error:
            yield f"hops.depth = {each}: cannot be: {error}"
            continue
        if test is not None:
            yield f"hops.depth = {each}: {test.in_words(loaded.dt)}"


class Rehearsed(NamedTuple):
    """Simulated test: margins, reason of a trip (or empty), and error norms by axis, %."""

    margins: Margins
    reason: str
    errors: dict[str, float]
    integrator: Data

    def in_words(self, dt: float) -> str:
        if self.reason:
            return f"on a simulator the test trips: {self.reason}"
        norms = ", ".join(f"{axis} {error:.3g} %" for axis, error in self.errors.items())
        return f"error norm on a simulator in {self.margins.samples * dt:.3g} s: {norms}"


Rehearsals = Callable[[int], Rehearsed | None]
"""Simulated test by depth of hops; each is run once."""


def _margins(loaded: Scenario, rehearsed: Rehearsed | None) -> Iterator[str]:
    """Describe the usable stroke of each axis, and the margin left by the simulated test."""
    from rths_nodes.core.braking import braked_together
    from rths_nodes.loop.supervision.safe_stop import braking_time

    names = list(loaded.limits)
    found = None if rehearsed is None else rehearsed.margins
    for group in braked_together(loaded.limits.values(), loaded.stop_groups):
        time = braking_time(loaded.limits[names[axis]] for axis in group)
        for axis in group:
            name, limits = names[axis], loaded.limits[names[axis]]
            if limits.of_force:
                continue
            way = 0.5 * limits.velocity * time
            words = (
                f"axes.{name}: stroke {1e3 * limits.stroke:.4g} mm less the braking way from "
                f"{limits.velocity:g} m/s, {1e3 * way:.3g} mm: {1e3 * (limits.stroke - way):.4g} mm"
            )
            if found is not None and found.samples > 1:
                words += (
                    f"; smallest way left beyond the braking way, on a simulator in "
                    f"{found.samples * loaded.dt:.3g} s: {1e3 * found.smallest[axis]:.4g} mm"
                )
            yield words
    if rehearsed is not None and rehearsed.reason:
        yield f"caution: {rehearsed.in_words(loaded.dt)}"


def _rehearsed(loaded: Scenario, depth: int) -> Rehearsed | None:
    """Simulate the test at this ``depth`` of hops, up to REHEARSED_S; None without models. Raises ConfigError."""
    from rths_nodes.loop.embedded import checked_loop
    from rths_nodes.loop.scenario.overrides import override
    from rths_nodes.loop.scenario.rehearsal import simulated

    test = loaded if depth == loaded.hops.depth else override(loaded, [f"hops.depth={depth}"])
    try:
        loop = checked_loop(simulated(test))
    except ConfigError:
        return None
    if any(part.external for part in (loop.assembly.integrator, loop.assembly.compensator, loop.rig.port)):
        return None
    until = monotonic() + REHEARSED_S
    margins = Margins(loaded.limits, loaded.dt, loaded.stop_groups)
    outcome = loop.run([margins], interrupted=lambda: monotonic() > until)
    reason = outcome.reason if outcome.state is State.TRIPPED else ""
    errors = {axis: row["error_norm_percent"] for axis, row in outcome.metrics["axes"].items()}
    return Rehearsed(margins, reason, errors, outcome.integrator)
