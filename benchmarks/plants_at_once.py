"""Many plants of the RTHS benchmark at a time, in arrays: python benchmarks/plants_at_once.py STUDY.yaml TABLE.csv

The runs of a study of ``rths_benchmark_2020`` with ``identified_inverse``, the arithmetic of the loop written once
more with an axis for the runs: a thousand tests of 41 s in some minutes on one processor. What it gives is held
against the package: with ``--beside TABLE.csv`` (of ``rths study``, as many of the same runs as there are) it
prints the largest difference of each index. It knows this one scenario and the linear range of its actuator;
``beyond`` in its table marks a run that left it. For all else there is ``rths study``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from at_once import table
from at_once.arrays import Array, Noise, product, stacked
from at_once.learned_inverse import LearnedInverse

from rths_nodes.analysis.published_indices import reference_displacement
from rths_nodes.app.studies import design
from rths_nodes.core.discretisation import transition
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.numerical.integrators.state_space import state_space

LAGS = 4
"""Samples either way in which the peak of the correlation is looked for."""
DOF = 3


class Structures:
    """Numerical substructures, exact steps with the force held, ``(6, runs)``."""

    def __init__(self, assemblies: list[Assembly], dt: float, group: Array, forces: list[Array]) -> None:
        structures = [assembly.structure for assembly in assemblies]
        matrices = [transition(*state_space(structure), dt) for structure in structures]
        self._phi = stacked([phi for phi, _, _ in matrices])
        self._held = stacked([before + now for _, before, now in matrices])[:, 0].copy()
        self._mass_inverse = stacked([np.linalg.inv(structure.mass) for structure in structures])
        self._rest = stacked([np.hstack([structure.stiffness, structure.damping]) for structure in structures])
        self._loading = stacked([np.hstack([before, now]) for _, before, now in matrices])
        self._forces = np.stack(forces).transpose(1, 2, 0).copy()
        self._group = group
        runs = len(assemblies)
        self.motion = np.zeros((2 * DOF, runs))
        self._before: Array | None = None
        self.acceleration = product(self._mass_inverse, self._forces[0][:, group])[0]

    def step(self, index: int, force: Array) -> None:
        """From ``index`` to the next under the measured ``force`` ``(runs,)``."""
        before = force if self._before is None else self._before
        applied = self._forces[index : index + 2, :, self._group]
        loading = product(self._loading, applied.reshape(2 * DOF, -1))
        self.motion = product(self._phi, self.motion) + loading - self._held * force
        load = applied[1] - product(self._rest, self.motion)
        load[0] -= 2.0 * force - before
        self.acceleration = (self._mass_inverse[0] * load).sum(axis=0)
        self._before = force


class Rigs:
    """Actuators and specimens in their linear range, converters and sensors."""

    def __init__(self, assemblies: list[Assembly]) -> None:
        plants = [assembly.fresh("port")._rig.axes[0][1] for assembly in assemblies]
        self._matrix = stacked([np.array(plant.rows) for plant in plants])
        self._units = np.array([plant.units for plant in plants]).T.copy()
        scenario = assemblies[0].scenario
        ((name, axis),) = scenario.axes.items()
        self._sensors, self._resolution = axis.sensors, axis.output.resolution
        self._most = axis.actuator.max_force
        self._noise = Noise([assembly.scenario.seed for assembly in assemblies], [name])
        runs = len(assemblies)
        self._state, self._line = np.zeros((5, runs)), [np.zeros(runs)] * scenario.port.transport_samples
        self._before, self._late = np.zeros(runs), np.zeros(runs)
        self.beyond = np.zeros(runs, bool)
        self.look()

    def look(self) -> None:
        """``displacement`` true, ``measured`` and the ``force`` of the sample before."""
        noise, sensors = self._noise.next()[:, 0], self._sensors
        self.displacement = self._state[3] * self._units[3]
        true_force = self._state[2] * self._units[2]
        self.beyond |= ~(np.abs(true_force) <= self._most)
        seen = self.displacement + sensors.displacement_noise_rms * noise[0]
        self.measured = np.round(seen / sensors.displacement_resolution) * sensors.displacement_resolution
        self.force, self._late = self._late, true_force + sensors.force_noise_rms * noise[1]

    def step(self, command: Array) -> None:
        """One sample on."""
        self._line.append(np.round(command / self._resolution) * self._resolution)
        now = self._line.pop(0)
        self._state = product(self._matrix, np.concatenate([self._state, [self._before, now]]))
        self._before = now
        self.look()


class Moments:
    """Standard deviation and largest value of a difference, sample by sample."""

    def __init__(self, runs: int) -> None:
        self._sums, self.largest, self._count = np.zeros((2, runs)), np.zeros(runs), 0

    def add(self, values: Array) -> None:
        """One sample of each run."""
        self._count += 1
        self._sums[0] += values
        self._sums[1] += values * values
        np.maximum(self.largest, np.abs(values), out=self.largest)

    @property
    def std(self) -> Array:
        """``(runs,)``."""
        mean = self._sums / self._count
        found: Array = np.sqrt(np.maximum(mean[1] - mean[0] ** 2, 0.0))
        return found


class Delays:
    """The signed delay by the peak of the correlation, of some samples either way."""

    def __init__(self, runs: int) -> None:
        self._lags = 2 * LAGS + 1
        self._targets, self._measured = [np.zeros(runs)] * self._lags, [np.zeros(runs)] * (LAGS + 1)
        self._sums, self._count, self._seen = np.zeros((3, self._lags, runs)), 0, 0
        self._of_measured = np.zeros((2, runs))

    def add(self, target: Array, measured: Array) -> None:
        """One sample of each run."""
        self._targets = [*self._targets[1:], target]
        self._measured = [*self._measured[1:], measured]
        self._seen += 1
        if self._seen < self._lags:
            return
        c, m = np.array(self._targets), self._measured[0]
        self._sums += c, c * c, c * m
        self._of_measured += m, m * m
        self._count += 1

    def samples(self) -> Array:
        """``(runs,)``; nan without a peak."""
        (c, cc, mc), (m, mm), n = self._sums, self._of_measured, self._count
        correlation = (mc - c * m / n) / np.sqrt((cc - c * c / n) * (mm - m * m / n))
        best = np.argmax(correlation, axis=0)
        inside = np.clip(best, 1, self._lags - 2)
        left, top, right = (np.take_along_axis(correlation, inside[None] + k, 0)[0] for k in (-1, 0, 1))
        offset = 0.5 * (left - right) / (left - 2.0 * top + right)
        return np.where(best == inside, LAGS - (inside + offset), np.nan)


@dataclass
class Indices:
    """The indices of all runs, sample by sample; ``references`` ``(steps + 1, 3, cases)`` m."""

    references: Array
    group: Array
    dt: float

    def __post_init__(self) -> None:
        runs, names = len(self.group), ("y", "e", "true", "noise", "r1", "r1_true", "r2", "r3")
        self._of = {name: Moments(runs) for name in names}
        self._exact = [Moments(self.references.shape[2]) for _ in range(DOF)]
        self._delay, self._true_delay = Delays(runs), Delays(runs)

    def add(self, sample: int, motion: Array, true: Array, measured: Array) -> None:
        """Sample ``sample``: numerical ``motion``, ``true`` and ``measured`` displacement of the axis."""
        reference, y = self.references[sample], motion[0]
        r = reference[:, self.group]
        for moments, values in zip(self._exact, reference, strict=True):
            moments.add(values)
        pairs = {
            "y": y,
            "e": measured - y,
            "true": true - y,
            "noise": measured - true,
            "r1": measured - r[0],
            "r1_true": true - r[0],
            "r2": motion[1] - r[1],
            "r3": motion[2] - r[2],
        }
        for name, values in pairs.items():
            self._of[name].add(values)
        self._delay.add(y, measured)
        self._true_delay.add(y, true)

    def found(self) -> dict[str, Array]:
        """By the names of ``rths study``, ``(runs,)`` each."""
        of, y = self._of, self._of["y"]
        rms = [moments.std[self.group] for moments in self._exact]
        peak = [moments.largest[self.group] for moments in self._exact]
        return {
            "signed_delay_ms": 1e3 * self.dt * self._delay.samples(),
            "tracking_rms_percent": 100.0 * of["e"].std / y.std,
            "tracking_peak_percent": 100.0 * of["e"].largest / y.largest,
            "rms_1_percent": 100.0 * of["r1"].std / rms[0],
            "peak_1_percent": 100.0 * of["r1"].largest / peak[0],
            "rms_2_percent": 100.0 * of["r2"].std / rms[1],
            "rms_3_percent": 100.0 * of["r3"].std / rms[2],
            "peak_2_percent": 100.0 * of["r2"].largest / peak[1],
            "peak_3_percent": 100.0 * of["r3"].largest / peak[2],
            "noise_floor_percent": 100.0 * of["noise"].std / y.std,
            "signed_delay_ms_true": 1e3 * self.dt * self._true_delay.samples(),
            "tracking_rms_percent_true": 100.0 * of["true"].std / y.std,
            "rms_1_percent_true": 100.0 * of["r1_true"].std / rms[0],
        }


def run(rows: list[design.Row]) -> dict[str, Array]:
    """The indices of all ``rows`` of a study, and ``beyond``: whether a run left what this program can."""
    assemblies = [Assembly(files.from_text(row.scenario, row.name)) for row in rows]
    scenario = assemblies[0].scenario
    dt = scenario.dt
    # runs of one case have one reference, one load
    keys = [assembly.scenario.structure for assembly in assemblies]
    masses = [
        (str(key.mass), str(key.damping), str(assembly.scenario.ground_motion))
        for key, assembly in zip(keys, assemblies, strict=True)
    ]
    cases = list(dict.fromkeys(masses))
    group = np.array([cases.index(key) for key in masses])
    first = [assemblies[masses.index(key)] for key in cases]
    references = np.stack([reference_displacement(assembly) for assembly in first], axis=-1)
    structures = Structures(assemblies, dt, group, [assembly.external_force for assembly in first])
    rigs = Rigs(assemblies)
    leads = np.array([assembly.scenario.compensator.lead for assembly in assemblies])
    one = assemblies[0].scenario
    law = LearnedInverse(one.compensator, one.dt, leads)
    ahead = np.array(
        [(s.force_lead / dt + 0.5 if s.force_lead else 0.0) for s in (a.scenario for a in assemblies)]
    )
    limits = next(iter(scenario.axes.values())).limits
    indices = Indices(references, group, dt)
    force, command, broken = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows), bool)
    indices.add(0, structures.motion, rigs.displacement, rigs.measured)
    for sample in range(scenario.samples):
        before, force = force, rigs.force
        structures.step(sample, force + ahead * (force - before))
        x, v, a = structures.motion[0], structures.motion[DOF], structures.acceleration
        sent, command = command, law.step(x[None], v[None], a[None], rigs.measured[None])[0]
        broken |= ~(np.abs(command - sent) <= limits.velocity * dt) | (np.abs(command) > limits.stroke)
        rigs.step(command)
        indices.add(sample + 1, structures.motion, rigs.displacement, rigs.measured)
        if sample % 8192 == 0:
            table.tell(sample / scenario.samples)
    return indices.found() | {
        "prior_distance": law.distance[0],
        "limit_broken": broken.astype(float),
        "beyond": rigs.beyond.astype(float),
    }


if __name__ == "__main__":
    table.main(__doc__, run, 256)
