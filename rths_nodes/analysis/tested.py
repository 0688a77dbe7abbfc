# SPDX-License-Identifier: Apache-2.0
"""Facts of a test in ``rths check``: excitation, stiffness, margins, times of steps and round trips."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rths_nodes.analysis.share_of_structure import partition
from rths_nodes.core import registry
from rths_nodes.core.braking import braked_together, braking_way, changes_of_step, samples_to_rest, way_left
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import Array, Command, Measurement, Target
from rths_nodes.core.validation import to_data
from rths_nodes.loop.options import REALTIME
from rths_nodes.loop.pacing import ANSWERED
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.command import PATIENCE
from rths_nodes.numerical.ground_motions.record import Record
from rths_nodes.recording.run import Run

ADVISED = 0.6
"""Default share of a step that ``predictor_corrector`` predicts."""

SAMPLES = 1000
"""Least samples: fewer have no 99.9 % quantile."""

LISTED = 3
"""Number of printed natural periods, longest first."""


def described(assembly: Assembly) -> Iterator[str]:
    """Yield excitation with peak and duration; periods of the whole structure; stiffness of each part."""
    yield f"excitation: {', '.join(_excitation(assembly))}"
    if assembly.scenario.structure is None:
        elsewhere = registry.class_of("integrator", assembly.scenario.integrator).external
        where = "it is computed in another process" if elsewhere else "the displacements are prescribed"
        yield f"structure: none is computed here, {where}"
        return
    expected = {
        name: axis.rig_axis.stiffness
        for name, axis in assembly.scenario.axes.items()
        if axis.rig_axis is not None and axis.rig_axis.stiffness is not None
    }
    try:
        found = partition(assembly, expected)
    except ConfigError as error:
        yield f"periods and stiffness: not taken apart: {error}"
        return
    if len(found.frequencies):
        periods = [f"{1.0 / f:.4g}" if f > 0.0 else "none" for f in found.frequencies[:LISTED].tolist()]
        more = f" s, the longest of {len(found.frequencies)}" if len(found.frequencies) > LISTED else " s"
        yield f"natural periods of the whole structure: {', '.join(periods)}{more}"
    else:
        yield "natural periods: not known, the part under test is not stated"
    source = found.source or "not stated, neither by the structure nor by a model of the specimen"
    tested = f"{_diagonal(found.experimental[2])} N/m, " if found.source else ""
    yield f"stiffness: numerical {_diagonal(found.numerical[2])} N/m; experimental {tested}{source}"


def _diagonal(matrix: Array) -> str:
    values = np.diag(np.asarray(matrix)).tolist()
    if len(values) <= LISTED:
        return ", ".join(f"{value:.4g}" for value in values)
    return f"{min(values):.4g} to {max(values):.4g} (diagonal of {len(values)})"


def _excitation(assembly: Assembly) -> Iterator[str]:
    scenario = assembly.scenario
    shaken = scenario.structure is not None or scenario.integrator.ground is not None
    prescribed = not shaken
    params: object = scenario.ground_motion if shaken else scenario.integrator.displacement
    if params is None:
        yield "that of the client of the integrator, which is not known here"
        return
    data = to_data(params)
    yield data.get("record") or (Path(str(data["file"])).name if data.get("file") else str(data["type"]))
    motion = registry.build("ground_motion", params, scenario.seed)
    times = scenario.step * np.arange(scenario.steps - scenario.soft_start_steps + 1)
    peak = float(np.abs(motion.sample(times) if prescribed else assembly.ground_acceleration).max())
    yield f"peak {1e3 * peak:.4g} mm" if prescribed else f"peak {peak:.4g} m/s^2"
    whole = f" of {motion.step * (len(motion.values) - 1):.4g} s" if isinstance(motion, Record) else ""
    yield f"{scenario.duration:g} s{whole}"


class RoundTrips(NamedTuple):
    """Time from a Measurement to its Command: of 99.9 % of the samples, and the longest, s."""

    p999: float
    longest: float

    def depth(self, dt: float) -> int:
        """Return the ``hops.depth`` for which 99.9 % are in time, at a servo period of ``dt`` s."""
        return max(0, math.ceil(self.p999 / dt - ANSWERED))


def of_recording(run: Run) -> RoundTrips:
    """Return the round trips of a test in real time. Raises ConfigError for another or too short one."""
    pace = run.information.get("pace", "")
    if pace != REALTIME:
        raise ConfigError(
            f"pace = {pace!r}: must be {REALTIME}: nobody is waited for in it, so hops can be measured"
        )
    if len(run.time) < SAMPLES or "loop" not in run.timing:
        raise ConfigError(
            f"{len(run.time)} samples: must be >= {SAMPLES}, to tell the longest 0.1 % of their ways"
        )
    return RoundTrips(run.timing["loop"]["p999_s"], run.timing["loop"]["max_s"])


def judged(scenario: Scenario, predicted: int, took: Array) -> Iterator[str]:
    """Yield sentences on steps that ``took`` these times, s; the ramp predicts ``predicted`` samples of a step."""
    count, bridge, step = len(took), scenario.bridge, scenario.samples_per_step * scenario.dt
    yield f"a step takes {quantiles(took)}"
    in_time = (predicted + PATIENCE) * scenario.dt
    late, lost = (int(np.count_nonzero(took > limit)) for limit in (in_time, in_time + bridge.max_bridge))
    share, ramp = predicted / scenario.samples_per_step, "this ramp"
    if not share:
        share, ramp = ADVISED, "ramp.type = predictor_corrector"
    good = math.ceil(float(took.max()) / share / scenario.dt) * scenario.dt
    yield f"in real time {_ms(in_time)} of {_ms(step)} are left for it: {late} of {count} took longer"
    yield f"none does with {ramp} and steps of {_ms(good)} or more"
    if lost:
        then = "the rig pauses" if bridge.pauses else "the rig trips; with bridge.when_late = pause it slows down"
        yield f"caution: {lost} took longer even than bridge.max_bridge = {_ms(bridge.max_bridge)} lets it: {then}"


def quantiles(took: Array) -> str:
    """Return median and tail of the times ``took`` (s), as text."""
    median, rare, longest = (_ms(value) for value in (np.median(took), np.percentile(took, 99.0), took.max()))
    return f"{median} (median), {rare} (99 %), {longest} (longest of {len(took)}), alone on this machine"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


class Margins:
    """A sink of a loop with displacement commands; ``limits`` and ``groups`` as of a LimitCheck, ``dt`` s.

    ``smallest`` has m by axis, inf for an axis without commands; ``samples`` is the last one.
    """

    def __init__(self, limits: dict[str, Limits], dt: float, groups: Sequence[int]) -> None:
        self._strokes = [each.stroke for each in limits.values()]
        self._changes = changes_of_step(limits.values(), dt)
        forced = [each.of_force for each in limits.values()]
        together = braked_together(limits.values(), groups)
        self._groups = [group for group in together if not forced[group[0]]]
        self.smallest = [float("inf")] * len(limits)
        self.samples = 0
        self._before: list[float] = []

    def command(self, command: Command) -> None:
        now, before = command.command.tolist(), self._before
        self._before, self.samples = now, command.sample
        for group in self._groups if before else ():
            steps = [now[axis] - before[axis] for axis in group]
            samples = samples_to_rest(steps, [self._changes[axis] for axis in group])
            for axis, step in zip(group, steps, strict=True):
                left = way_left(now[axis], step, self._strokes[axis]) - braking_way(step, samples)
                self.smallest[axis] = min(self.smallest[axis], left)

    def target(self, target: Target) -> None: ...

    def measurement(self, measured: Measurement) -> None: ...

    def truth(self, true: Measurement) -> None: ...

    def state(self, sample: int, values: Sequence[float]) -> None: ...

    def updating(self, sample: int, values: Sequence[float]) -> None: ...
