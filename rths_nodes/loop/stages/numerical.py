# SPDX-License-Identifier: Apache-2.0
"""Numerical stage: computes Target i + 1 from Measurement i n, with ground motion, structure and integrator.

Extrapolation of the measured force over its delay (``force_lead``):

    f^ = f_k + p b_k

f_k is the force at sample k, and b_k the slope of a straight line fitted to the last n + 1 forces. p is the delay
of the force in samples, including the integrator's ``force_age``, and n the number of samples in an integration
step. A slope from only two samples would multiply the noise of the force by sqrt((1 + p)^2 + p^2).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import add
from typing import Any

import numpy as np

from rths_nodes.core.arithmetic import dot, is_finite
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ComponentError, ConfigError, show
from rths_nodes.core.parameters import type_of
from rths_nodes.core.protocols import Integrator, SemiActive, Setup
from rths_nodes.core.samples import EMPTY, FLAG_BRIDGED, FLAG_SLOWED, FLAG_TRIPPED, Array, Measurement, Target
from rths_nodes.core.wire import Codec
from rths_nodes.laboratory.corrections import low_pass
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import USED, Copies
from rths_nodes.mechanics import updating
from rths_nodes.numerical.reductions import energies_of


class ForceLead:
    """Extrapolates the axis forces by ``samples`` servo periods, along the slope of the last ``span`` periods.

    After a bridged or slowed sample, the last slope is used until ``span`` + 1 samples have been measured.
    """

    def __init__(self, samples: float, span: int, n_axes: int) -> None:
        self._samples, self._span = samples, span
        ages = np.arange(span, -1, -1.0)
        middle = ages - ages.mean()
        # weights of the last forces, oldest first: slope of a fitted line, multiplied by ``samples``
        self.slope: list[float] = (-samples * middle / (middle @ middle)).tolist()
        rest = [0.0] * n_axes
        # for one value per sample and few axes, plain floats are faster than arrays
        self._forces = deque([rest] * (span + 1), maxlen=span + 1)
        self._resting = 0
        self._change = rest

    @property
    def weights(self) -> Array:
        """Weights ``(span + 1,)`` of the last forces in the extrapolated force, newest first."""
        weights: Array = np.array(self.slope[::-1]) + np.eye(self._span + 1)[0]
        return weights

    def extend(self, forces: Iterable[Sequence[float]]) -> None:
        self._forces.extend(map(list, forces))

    def add(self, measured: Measurement) -> None:
        self._forces.append(measured.force.tolist())
        if measured.flags & (FLAG_BRIDGED | FLAG_SLOWED):
            self._resting = self._span + 1
        elif self._resting:
            self._resting -= 1

    def now(self) -> Sequence[float]:
        if not self._resting:
            self._change = [dot(self.slope, axis) for axis in zip(*self._forces, strict=True)]
        return list(map(add, self._forces[-1], self._change))


COUNTED = {
    updating.FLAGGED: "flagged",
    updating.NOT_FINITE: "not_finite",
    updating.TOO_FAST: "too_fast",
    updating.DEAD: "dead",
    updating.SPIKE: "spikes",
    updating.STRANGE: "unexplained",
}


class NumericalStage:
    """Computes Targets from the forces of the axes, with the components of an ``assembly``.

    The controller of auxiliary inputs runs only if ``controlled`` is true. Raises ConfigError if a component
    cannot be built, or if the setup cannot reach the amplitude of the soft start.

    ``pending`` is true while an external integrator computes the next Target. The host then polls :meth:`answer`.
    """

    def __init__(self, assembly: Assembly, controlled: bool = True) -> None:
        scenario, structure = assembly.scenario, assembly.structure
        self.integrator: Integrator = assembly.integrator
        self.setup: Setup = assembly.setup
        self._setup_type = f"setup.type = {type_of(scenario.setup)!r}"
        self.external_force = assembly.external_force
        self._seen = seen = assembly.observation
        self._energies = None if seen.complete or structure is None else energies_of(structure)
        self.substeps = scenario.samples_per_step
        self._ratio = scenario.time_ratio
        self._steps = scenario.steps
        self._index = 0
        self.pending = False
        self._begins = type(self.integrator).begin is not Integrator.begin
        self._nothing = np.zeros(seen.n_observed)
        self._controller: SemiActive | None = assembly.controller if controlled else None
        self._ground_acceleration = assembly.ground_acceleration.tolist() if self._controller else []
        self._auxiliary = np.zeros(len(assembly.names.inputs))
        self._lead = force_lead_of(scenario, self.integrator)
        all_axes = not scenario.force_axes or self.setup.takes_loads
        self._moved = None if all_axes else len(scenario.moved_axes)
        self.learning = None if scenario.updating is None else Learning(scenario)
        self._before = scenario.soft_start_steps
        if scenario.soft_start:
            self._soft_start = self._prescribed(scenario)

    @property
    def external(self) -> bool:
        return self.integrator.external

    def _prescribed(self, scenario: Scenario) -> list[Target]:
        assert scenario.soft_start is not None
        # evaluate the displacement ratio at full amplitude, because a setup can be nonlinear
        amplitude = scenario.soft_start.amplitude
        unit = self.setup.degrees_of_freedom(np.full(len(scenario.moved_axes), amplitude)) / amplitude
        unit = np.append(unit, np.zeros(len(self._nothing) - len(unit)))  # zero for the rest
        if not np.isfinite(unit).all():
            raise ConfigError(f"soft_start.amplitude = {amplitude:g} m: the setup cannot reach this position")
        *motion, flags = scenario.soft_start.motion(self.substeps * scenario.dt)
        x, v, a = (np.outer(values, unit) for values in motion)
        rest, auxiliary = self._nothing, self._auxiliary
        energies = () if self._seen.complete else (np.zeros(4),)
        return [
            Target(i, x[i], v[i], a[i], a[i], rest, rest, auxiliary, flags[i], *energies)
            for i in range(len(flags))
        ]

    def open(self) -> None:
        self.integrator.open()

    def missing(self) -> str:
        """Return the reason why the integrator is not yet ready for step 0, or an empty string.

        Call this method after :meth:`open`. Raises ConfigError if the integrator cannot become ready.
        """
        return self.integrator.missing()

    def numbers(self) -> Data:
        results = self.integrator.numbers()
        return results if self.learning is None else results | self.learning.numbers()

    def close(self) -> None:
        self.integrator.close()

    def first(self) -> Target:
        if self._before:
            return self._soft_start[0]
        target = self._target(self._nothing, self.integrator.displacement)
        if self._energies is not None:
            target.energies = np.zeros(4)
        return target

    def resume(self, step: int, forces: Sequence[Sequence[float]]) -> None:
        self._index = step
        if self._lead is not None:
            self._lead.extend(forces)

    def next(self, measured: Measurement) -> Target | None:
        """Return the next Target if ``measured`` begins a step and the test continues, otherwise None.

        Also return None while the Target is ``pending``; :meth:`answer` returns this Target later.
        """
        if measured.flags & FLAG_TRIPPED:
            self.pending = False  # after a trip, no Target is needed
            return None
        if self._lead is not None:
            self._lead.add(measured)
        if self.learning is not None:
            self.learning.add(measured)
        if self.pending or measured.sample != self._index * self.substeps:
            return None  # a test that has ended begins no step while a Target is pending
        if self._index < self._before:
            self._index += 1
            return self._soft_start[self._index]
        self._measured = measured
        forces = measured.force.tolist() if self._lead is None else self._lead.now()
        if self._moved is not None:
            forces = forces[: self._moved]
        seen, solver = self._seen, self.integrator
        pose = solver.displacement if seen.as_is else seen.interface(solver.displacement)
        values = self.setup.felt(forces, pose.tolist())
        total = sum(values, 0.0)
        if total - total != 0.0 and not is_finite(values) and is_finite((forces, pose)):
            raise ComponentError(f"{self._setup_type}: forces = {show([*values])} N: must be finite")
        felt = np.array(values)
        self._force = felt if seen.as_is else seen.spread(felt)
        if self._index == self._steps:
            solver.finish(self._force)
            return None
        self._index += 1
        if self._begins:
            solver.begin(self._force)
        self.pending = True
        return self.answer()

    def answer(self, wait: bool = False) -> Target | None:
        """Return the pending Target, or None if the integrator has not finished. If ``wait`` is true, wait for it.

        Raises IntegratorError if the integrator fails. No Target is then pending.
        """
        if not self.pending:
            return None
        self.pending = False
        if not (wait or self.integrator.ready()):
            self.pending = True
            return None
        step = self._index - self._before - 1
        solver = self.integrator
        counted = self._energies is not None
        x, v = (solver.displacement.copy(), solver.velocity.copy()) if counted else (EMPTY, EMPTY)
        if self.learning is not None:
            self.learning.follow(solver)
        solver.step(self._force)
        if self._controller is not None:
            self._auxiliary = self._controller.step(self._measured, self._ground_acceleration[step])
        external = self.external_force[step]
        target = self._target(self._seen.external(external), x)
        if self._energies is not None:
            target.energies = self._energies(x, v, solver.restoring_force, external)
        return target

    def _target(self, external: Array, before: Array) -> Target:
        solver, ratio, restoring = self.integrator, self._ratio, self.integrator.restoring_force
        displacement, velocity = solver.displacement, solver.velocity
        acceleration, exact = solver.acceleration, solver.exact_acceleration
        if not self._seen.complete:
            moved = displacement, velocity, acceleration, exact
            displacement, velocity, acceleration, exact = map(self._seen.motion, moved)
            restoring = self._seen.restoring(restoring, before)
        if ratio != 1:  # convert the motion to the rig's time
            square = ratio * ratio
            velocity, acceleration, exact = velocity / ratio, acceleration / square, exact / square
        auxiliary = self._auxiliary
        return Target(self._index, displacement, velocity, acceleration, exact, external, restoring, auxiliary)


def force_lead_of(scenario: Scenario, integrator: Integrator) -> ForceLead | None:
    if scenario.force_lead is None:
        return None
    step = scenario.samples_per_step
    samples = scenario.force_lead * scenario.servo_rate + integrator.force_age * step
    return ForceLead(samples, step, len(scenario.axes))


def step_warm_up(assembly: Assembly) -> Callable[[Codec], Target | None]:
    """Return a function that computes the next Target of a twin stage, or returns None after the last step.

    Between two steps, other work evicts code and data of the integrator from the processor's caches. The function
    reloads part of them. The twin shares no state with the test (``core/protocols.py``).
    """
    stage, names = NumericalStage(assembly.twin(loaded=False)), assembly.names
    rest = np.zeros(len(names.axes))
    measured = Measurement(0, rest, rest, rest, np.zeros(len(names.auxiliary)))

    def warm_up(codec: Codec) -> Target | None:
        codec.unpack_measurement(codec.pack_measurement(measured, 0))
        target = stage.next(measured)
        if target is not None:
            measured.sample += stage.substeps
            codec.pack_target(target, 0)
        return target

    return warm_up


class Learning:
    """Estimates parameters of a model that copies the specimen.

    :meth:`add` receives every Measurement, and :meth:`learn` updates the estimates. Displacement and force are
    aligned in time: the displacement is delayed like the force, and passes through the same filter. Each pair of
    displacement and force is used one period later, because its velocity is a central difference.
    """

    def __init__(self, scenario: Scenario) -> None:
        copies = Copies(scenario)
        self.copy, self._settings = copies.learns, copies.settings
        self.every, self._axis = copies.every, copies.axis
        axis = scenario.axes[copies.section.axis]
        self._estimator = updating.LAWS[copies.section.law](self.copy, self._settings)
        self._filter = low_pass(axis, scenario.dt)
        self._begun = False
        self._held = axis.sensors.force_delay + 1
        self._line: deque[tuple[float, bool]] = deque(maxlen=self._held)
        self._pairs: deque[tuple[float, float, bool]] = deque(maxlen=3)
        """Pairs of displacement (m) and simultaneous force (N), each with True if the pair is unusable."""
        self._due: tuple[int, updating.Sample] | None = None
        self._state: updating.State | None = None
        self._followers = copies.followers() if copies.section.mode == USED else {}
        self._followed: Array | None = None
        self._counts = dict.fromkeys(COUNTED, 0)
        self._learnt = self._strange_from = self._left_from = 0
        self._at_bound = [False for _ in self.copy.names]

    def follow(self, integrator: Integrator) -> None:
        if self._state is None or self._state.released is self._followed:
            return
        self._followed = self._state.released
        shares = self._followed.tolist()
        for name, copy in self._followers.items():
            integrator.renew(name, copy.change(shares))

    def add(self, measured: Measurement) -> None:
        """Add a sample. Every ``every`` samples, a new pair begins and the previous pair is due for learning."""
        x, bad = float(measured.displacement[self._axis]), measured.flags & updating.UNUSABLE != 0
        if self._filter is not None:
            if not math.isfinite(x):  # replace the value, because it would remain in the filter
                x, bad = (self._line[-1][0] if self._line else 0.0), True
            else:
                if not self._begun:
                    self._filter.start(x)
                    self._begun = True
                x = self._filter.step(x)
        self._line.append((x, bad))
        if measured.sample % self.every or len(self._line) < self._held:
            return
        earlier, flagged = self._line[0]
        pairs = self._pairs
        pairs.append((earlier, float(measured.force[self._axis]), bad or flagged))
        if len(pairs) > 1:
            displacement, force, unusable = pairs[-2]
            velocity = (pairs[-1][0] - pairs[0][0]) / ((len(pairs) - 1) * self._settings.period)
            self._due = measured.sample, updating.Sample(displacement, velocity, force, unusable)

    def learn(self) -> tuple[int, list[float]] | None:
        """Update the estimates from the due pair. Return its sample number and the new values, or None.

        Call this after the Target has been published.
        """
        if self._due is None:
            return None
        (number, sample), self._due = self._due, None
        if self._state is None:
            begin = sample.displacement if math.isfinite(sample.displacement) else 0.0
            self._state = updating.at_rest(self._estimator, self.copy, begin)
        state, result = updating.step(self._estimator, self.copy, self._settings, self._state, sample)
        self._state = state
        self._count(number, result.use, state)
        m, scale = len(self.copy.names), self.copy.initial
        learned = np.stack((state.belief.mean[:m], state.belief.deviation[:m], state.released)) * scale
        rest = result.expected, result.spread, state.mean_square, float(result.use)
        return number, [*learned.ravel().tolist(), *rest]

    def _count(self, number: int, kind: int, state: updating.State) -> None:
        if kind in self._counts:
            self._counts[kind] += 1
        else:
            self._learnt += 1
        if not self._strange_from and state.mean_square > updating.UNEXPLAINED:
            self._strange_from = number
        if not self._left_from and state.left:
            self._left_from = number
        shares = zip(self.copy.lower, state.belief.mean, self.copy.upper, strict=False)
        for index, (low, share, high) in enumerate(shares):
            self._at_bound[index] |= not low < share < high

    def numbers(self) -> Data:
        numbers: Data = {"learnt": self._learnt, "first_unexplained_sample": self._strange_from}
        if self._left_from:
            numbers["left_prior_sample"] = self._left_from
        numbers |= {COUNTED[kind]: count for kind, count in self._counts.items() if count}
        if self._state is not None:
            belief, m = self._state.belief, len(self.copy.names)
            columns: dict[str, Any] = {
                "initial": self.copy.initial,
                "estimate": self.copy.initial * belief.mean[:m],
                "deviation": self.copy.initial * belief.deviation[:m],
                "released": self.copy.initial * self._state.released,
                "left": belief.deviation[:m] / self._settings.prior[:m],
                "at_bound": self._at_bound,
            }
            for index, name in enumerate(self.copy.names):
                numbers[name] = {key: float(values[index]) for key, values in columns.items()}
        return {"updating": numbers}
