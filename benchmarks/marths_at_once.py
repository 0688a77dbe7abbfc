"""Many rigs of the multi-axial benchmark, in arrays: python benchmarks/marths_at_once.py STUDY.yaml TABLE.csv

The runs of a study of ``marths_2023`` with the coupled ``identified_inverse`` that vary seed and transfer
functions only, the arithmetic of the loop written once more with an axis for the runs: a thousand tests of 41 s in
some minutes on one processor, and then how each index is distributed. What it gives is held against the package:
with ``--beside TABLE.csv`` (of ``rths study``, as many of the same runs as there are) it prints the largest
difference of each index. ``limit_broken`` in its table marks a run that the package would have stopped; where
there is one the exit code is 1. For all else there is ``rths study``.
"""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

import numpy as np
from at_once import table
from at_once.arrays import Array, Noise, product, stacked
from at_once.coupler import LongCoupler
from at_once.learned_inverse import LearnedInverse

from rths_nodes.analysis.published_indices import (
    CODE,
    NODE,
    ORDERS,
    STORIES,
    TRUE,
    numbers,
    peak_percent,
    reference_displacement,
    rms_percent,
    signed_lag,
)
from rths_nodes.analysis.units import MM, MS, PERCENT
from rths_nodes.app.studies import design
from rths_nodes.core import registry
from rths_nodes.core.strict import build
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.delay import delay_samples
from rths_nodes.numerical.integrators.newmark import Rates, motion_of, rates, rates_of

NAME = "marths_2023"
VARIED = ("name", "seed", "recording", "rig.responses", "rig.common_poles")
"""Keys of the scenario in which the runs may differ."""
CHOSEN = ("description", "duration", "ground_motion", "structure", "compensator", "axes", "scatter", "cases")
"""Keys in which a study may differ from the scenario, if they are the same in all its runs."""
SEEN = (*NODE, *STORIES.values())
"""Places of the degrees of freedom of which the indices are."""


class Frames:
    """Numerical substructures, all of one frame, by the steps of its ``newmark``."""

    def __init__(self, assembly: Assembly, runs: int) -> None:
        solver: Any = assembly.integrator
        solver.reset()
        self._steps, per_force = motion_of(assembly.structure, solver.dt)
        self._rates = Rates(*(each[:, None] for each in rates_of(assembly.structure, solver.dt)))
        self._pose: Array = np.array(assembly.scenario.setup.pose)
        self._loads = assembly.external_force @ per_force.T
        self._per_force = per_force @ self._pose.T
        n = len(solver.displacement)
        self._state, self._n = np.zeros((3 * n, runs)), n
        self._state[2 * n :] = solver.acceleration[:, None]
        self.seen = np.zeros((len(SEEN), runs))
        """Displacements that the indices take, ``(6, runs)``."""
        self.node = np.zeros((3, 2, runs))
        """Displacement, velocity and acceleration of x and theta of the coupler."""

    def step(self, index: int, force: Array) -> None:
        """From ``index`` to the next under the measured ``force`` ``(2, runs)`` of x and theta."""
        n, state = self._n, self._state
        now = self._steps @ state - self._per_force @ force
        now += self._loads[index + 1][:, None]
        motion = rates(self._rates, now - state[:n], state[n : 2 * n], state[2 * n :])
        self._state = np.concatenate([now, *motion])
        self.node = np.array([self._pose @ part for part in self._state.reshape(3, n, -1)])
        self.seen = now[list(SEEN)]


class Rigs:
    """Actuators, coupler and specimen of each run, converters and sensors."""

    def __init__(self, scenarios: list[Scenario]) -> None:
        one = scenarios[0]
        kind = registry.class_of("rig", one.rig)
        rigs: list[Any] = [kind(each.rig, each.dt, len(each.axes)).constants for each in scenarios]
        self._onward, self._seen = stacked([rig.onward for rig in rigs]), stacked([rig.seen for rig in rigs])
        self._specimen = [np.array(part) for part in (rigs[0].stiffness, rigs[0].damping, rigs[0].mass)]
        self._coupler = LongCoupler(one.rig.coupler)
        axes = one.axes.values()
        self._rms = np.array(
            [[a.sensors.displacement_noise_rms for a in axes], [a.sensors.force_noise_rms for a in axes]]
        )[:, :, None]
        self._range = np.array([axis.output.range for axis in axes])[:, None]
        self._noise = Noise([each.seed for each in scenarios], list(one.axes))
        still = np.zeros((len(axes), len(scenarios)))
        self._state = np.zeros((len(rigs[0].onward), len(scenarios)))
        self._line, self._before, self._pose = [still] * one.port.transport_samples, still, still
        self.beyond = np.zeros(len(scenarios), bool)
        """Runs in which the coupler has left its reach."""
        self.look()

    def look(self) -> None:
        """``displacement`` true, ``measured``, and the measured ``force``, ``(2, runs)`` each."""
        known = product(self._seen, np.concatenate([self._state, self._before]))
        self.displacement, velocity, acceleration = known.reshape(3, -1, known.shape[1])
        pose, lost = self._coupler.pose(self.displacement, self._pose)
        rates = self._coupler.motion(pose, velocity, acceleration)
        stiffness, damping, mass = self._specimen
        forces = stiffness @ pose + damping @ rates[0] + mass @ rates[1]
        self.beyond |= lost
        self._pose = pose
        noise = self._rms * self._noise.next()
        self.measured = self.displacement + noise[0]
        self.force = self._coupler.axis_forces(forces, pose) + noise[1]

    def step(self, command: Array) -> None:
        """One sample on with the commands ``(2, runs)``."""
        self._line.append(np.clip(command, -self._range, self._range))
        now = self._line.pop(0)
        self._state = product(self._onward, np.concatenate([self._before, self._state, now]))
        self._before = now
        self.look()


class Limits:
    """What the limits of the scenario, and the reach of its coupler, would have stopped."""

    def __init__(self, scenario: Scenario, runs: int) -> None:
        of = scenario.limits.values()
        self._stroke, self._force = (np.array([getattr(one, name) for one in of]) for name in ("stroke", "force"))
        self._step = np.array([one.velocity for one in of]) * scenario.dt
        self._range = np.array([axis.output.range for axis in scenario.axes.values()])
        self._rotation = scenario.setup.largest_rotation
        self.broken = np.zeros(runs, bool)
        self.largest = np.zeros((len(of), runs))
        """The largest command of each axis, m."""

    def command(self, command: Array, sent: Array, theta: Array) -> None:
        """Before it is sent; ``theta`` is the rotation of the node that is asked for."""
        size = np.abs(command)
        within = (size <= self._stroke[:, None]) & (np.abs(command - sent) <= self._step[:, None])
        self.broken |= ~(within.all(axis=0) & (np.abs(theta) <= self._rotation))
        np.maximum(self.largest, size, out=self.largest)

    def measurement(self, measured: Array, force: Array) -> None:
        """What came of it."""
        within = (np.abs(measured) <= self._stroke[:, None]) & (np.abs(force) <= self._force[:, None])
        self.broken |= ~within.all(axis=0)

    def found(self) -> table.Found:
        """Columns of the table."""
        largest = {f"largest_command_{axis + 1}_mm": MM * size for axis, size in enumerate(self.largest)}
        at_end = (self.largest >= self._range[:, None]).any(axis=0)
        return largest | {
            "command_at_end_of_range": at_end.astype(float),
            "limit_broken": self.broken.astype(float),
        }


class Indices:
    """The indices of a run by its histories, with the functions of the package."""

    def __init__(self, assembly: Assembly) -> None:
        scenario = assembly.scenario
        self._dt = scenario.dt
        self._longest = max(1, math.ceil(scenario.monitor.longest_delay / scenario.dt))
        self._coupler = LongCoupler(scenario.setup)
        self._node = assembly.setup._inverse[list(NODE)]
        self._reference = reference_displacement(assembly)[:, list(SEEN)].T.copy()

    def of(self, target: Array, measured: Array, true: Array, numerical: Array) -> dict[str, float]:
        """By the names of ``rths study``; of the axes ``(2, samples)`` each, ``numerical`` ``(6, samples)``."""
        found = self._displaced(target, measured, numerical)
        for place, name in enumerate(STORIES, len(NODE)):
            pair = numerical[place], self._reference[place]
            found |= {f"rms_{name}_percent": rms_percent(*pair), f"peak_{name}_percent": peak_percent(*pair)}
        noise = measured - true
        for axis, (n, y) in enumerate(zip(noise, target, strict=True)):
            found[f"noise_floor_{axis + 1}_percent"] = PERCENT * float(np.std(n) / np.std(y))
        known = self._displaced(target, true, numerical)
        return found | {name + TRUE: value for name, value in known.items()}

    def _displaced(self, target: Array, displacement: Array, numerical: Array) -> dict[str, float]:
        """Those that ask where the axes are, measured or in truth."""
        found: dict[str, float] = {}
        late = MS * self._dt * delay_samples(target.T, displacement.T, self._longest)
        for axis, (y, m) in enumerate(zip(target, displacement, strict=True)):
            found |= {
                f"tracking_delay_{axis + 1}_ms": MS * self._dt * signed_lag(y, m),
                f"signed_delay_{axis + 1}_ms": float(late[axis]),
                f"tracking_rms_{axis + 1}_percent": rms_percent(m, y),
                f"tracking_peak_{axis + 1}_percent": peak_percent(m, y),
            }
        node = self._node @ self._coupler.pose(displacement)[0]
        for name, m, y, r in zip(("x", "theta"), node, numerical, self._reference, strict=False):
            found |= {
                f"node_delay_{name}_ms": MS * self._dt * signed_lag(y, m),
                f"node_rms_{name}_percent": rms_percent(m, y),
                f"node_peak_{name}_percent": peak_percent(m, y),
                f"reference_rms_{name}_percent": rms_percent(m, r),
                f"reference_peak_{name}_percent": peak_percent(m, r),
            }
        return found


def scenarios_of(rows: list[design.Row]) -> list[Scenario]:
    """Those of the runs; ends the program where they differ in more than this program can."""
    found = [json.loads(row.scenario) for row in rows]
    shipped, first = flat(json.loads(json.dumps(files.load(NAME).data()))), flat(found[0])
    for row, data in zip(rows, found, strict=True):
        for key, value in flat(data).items():
            other, whose = (first, f"that of run {rows[0].number}") if key in CHOSEN else (shipped, NAME)
            if key not in VARIED and other.get(key) != value:
                sys.exit(f"run {row.number}: {key} differs from {whose}: only rths study can")
    return [build(Scenario, data) for data in found]


def flat(data: dict[str, Any]) -> dict[str, Any]:
    """The sections of a scenario, those of its rig among them."""
    rig = data.get("rig") or {}
    return {name: data[name] for name in data if name != "rig"} | {f"rig.{name}": rig[name] for name in rig}


def run(rows: list[design.Row]) -> table.Found:
    """The indices of all ``rows`` of a study."""
    scenarios = scenarios_of(rows)
    assembly, runs = Assembly(scenarios[0]), len(rows)
    scenario = scenarios[0]
    coupler = LongCoupler(scenario.setup)
    frames, rigs, limits = Frames(assembly, runs), Rigs(scenarios), Limits(scenario, runs)
    law = LearnedInverse(scenario.compensator, scenario.dt, np.full(runs, scenario.compensator.lead))
    # target, measured and true displacement of the axes, and what of the frame the indices take
    history = np.zeros((scenario.samples + 1, 6 + len(SEEN), runs))
    command = target = np.zeros((2, runs))
    for sample in range(scenario.samples + 1):
        history[sample] = np.concatenate([target, rigs.measured, rigs.displacement, frames.seen])
        limits.measurement(rigs.measured, rigs.force)
        if sample == scenario.samples:
            break
        frames.step(sample, coupler.forces(rigs.force, frames.node[0]))
        target, v, a = coupler.axes(*frames.node)
        sent, command = command, law.step(target, v, a, rigs.measured)
        limits.command(command, sent, frames.node[0, 1])
        rigs.step(command)
        if sample % 4096 == 0:
            table.tell(sample / scenario.samples)
    limits.broken |= rigs.beyond
    indices = Indices(assembly)
    found = [indices.of(*np.split(np.ascontiguousarray(history[:, :, i].T), [2, 4, 6])) for i in range(runs)]
    learned = {f"prior_distance_{axis + 1}": far for axis, far in enumerate(law.distance)}
    return {name: np.array([one[name] for one in found]) for name in found[0]} | learned | limits.found()


def spread(found: table.Found) -> int:
    """Print how each index is distributed: of both axes, x and theta, or the stories, in one line.

    Gives how many runs a limit has stopped, which are left out.
    """
    stopped = found["limit_broken"] > 0.0
    print(f"{len(stopped)} runs, {stopped.sum()} stopped by a limit")
    if stopped.all():
        return len(stopped)
    print("| | least | 5 % | median | 95 % | largest |\n|---|---|---|---|---|---|")
    lines: dict[str, list[Array]] = {}
    asked = ORDERS[NAME][CODE]
    for name in dict.fromkeys([*asked, *(name + TRUE for name in asked), *found]):
        if name in found:
            lines.setdefault(title(name), []).append(found[name][~stopped])
    for line, several in lines.items():
        five = np.percentile(several, (0, 5, 50, 95, 100), axis=1)
        print(f"| {line} | {' | '.join(', '.join(f'{value:.3f}' for value in each) for each in five)} |")
    return int(stopped.sum())


def title(name: str) -> str:
    """What the indices of a line have in common: the number in the benchmark and the unit, else the name."""
    bare = name.removesuffix(TRUE)
    number = numbers(NAME, bare).get(CODE)
    if number is None:
        return re.sub("_[12](?=_|$)", "", name)
    words = ("true " if name.endswith(TRUE) else "") + number.partition(",")[0]
    return f"{words}, {'ms' if bare.endswith('_ms') else '%'}"


if __name__ == "__main__":
    sys.exit(1 if spread(table.main(__doc__, run, 125)) else 0)
