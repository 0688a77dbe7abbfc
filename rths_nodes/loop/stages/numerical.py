"""The numerical substructure: ground motion, structure and integrator; Measurement i n -> Target i + 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Integrator, SemiActive, Setup
from rths_nodes.core.samples import FLAG_TRIPPED, Array, Measurement, Target
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.stages.force_lead import ForceLead


class NumericalStage:
    """The numerical substructure: turns the forces of the axes into Targets.

    ``external_force`` ``(steps + 1, n_dof)`` N and ``ground_acceleration`` ``(steps + 1,)`` m/s^2 are those of the
    test without its soft start; a ``controller`` sets the ``n_inputs`` auxiliary inputs of the rig.
    Raises ConfigError for a soft start beyond the reach of the setup.

    The stage never waits for an integrator that is answered from outside: while the integrator works on the next
    Target, that is ``pending``, and a host asks for the :meth:`answer`.
    """

    def __init__(
        self,
        scenario: Scenario,
        integrator: Integrator,
        setup: Setup,
        external_force: Array,
        ground_acceleration: Array,
        controller: SemiActive | None = None,
        n_inputs: int = 0,
    ) -> None:
        self.integrator = integrator
        self.setup = setup
        self.external_force = external_force
        self.n_dof = external_force.shape[1]
        self.substeps = scenario.samples_per_step
        self._ratio = scenario.time_ratio
        self._steps = scenario.steps
        self._index = 0
        self.pending = False
        self._nothing = np.zeros(self.n_dof)
        self._controller = controller
        self._ground_acceleration = ground_acceleration.tolist()
        self._auxiliary = np.zeros(n_inputs)
        self._lead = force_lead_of(scenario, integrator)
        self._before = scenario.soft_start_steps
        if scenario.soft_start:
            self._soft_start = self._prescribed(scenario)

    @classmethod
    def of(cls, assembly: Assembly) -> NumericalStage:
        """The stage of an assembly. Raises ConfigError where a part cannot be built."""
        return cls(
            assembly.scenario,
            assembly.integrator,
            assembly.setup,
            assembly.external_force,
            assembly.ground_acceleration,
            assembly.controller,
            len(assembly.names.inputs),
        )

    def _prescribed(self, scenario: Scenario) -> list[Target]:
        """The Targets of the soft start; the last is the start of the test."""
        assert scenario.soft_start is not None
        # a setup need not be linear: the whole amplitude is what must be right
        amplitude = scenario.soft_start.amplitude
        unit = self.setup.degrees_of_freedom(np.full(len(scenario.axes), amplitude)) / amplitude
        if not np.isfinite(unit).all():
            raise ConfigError(f"soft_start.amplitude = {amplitude:g} m: lies beyond the reach of the setup")
        *motion, flags = scenario.soft_start.motion(self.substeps * scenario.dt)
        x, v, a = (np.outer(values, unit) for values in motion)
        rest, auxiliary = self._nothing, self._auxiliary
        return [Target(i, x[i], v[i], a[i], a[i], rest, rest, auxiliary, flags[i]) for i in range(len(flags))]

    def open(self) -> None:
        """Before the test: connect to an integrator that is answered from outside."""
        self.integrator.open()

    def missing(self) -> str:
        """What the test has to wait for since :meth:`open`, in words. Raises ConfigError where it never comes."""
        return self.integrator.missing()

    def numbers(self) -> Mapping[str, Any]:
        """What the integrator has for the recording beside its Targets, nested by name."""
        return self.integrator.numbers()

    def close(self) -> None:
        """After the test, or in place of one."""
        self.integrator.close()

    def first(self) -> Target:
        """Target 0, the start state."""
        return self._soft_start[0] if self._before else self._target(self._nothing)

    def next(self, measured: Measurement) -> Target | None:
        """The next Target, when ``measured`` is the sample it needs and the test goes on; None otherwise.

        None also while it is ``pending``: then :meth:`answer` gives it.
        """
        if measured.flags & FLAG_TRIPPED:
            self.pending = False  # nobody needs it any more
            return None
        if self._lead is not None:
            self._lead.add(measured)
        if measured.sample != self._index * self.substeps:
            return None
        if self._index < self._before:
            self._index += 1
            return self._soft_start[self._index]
        self._measured = measured
        forces = measured.force if self._lead is None else self._lead.now()
        self._force = self.setup.forces(forces, self.integrator.displacement)
        if self._index == self._steps:
            self.integrator.finish(self._force)
            return None
        self._index += 1
        self.integrator.begin(self._force)
        self.pending = True
        return self.answer()

    def answer(self, wait: bool = False) -> Target | None:
        """The Target that is pending; None where the integrator is not ready, unless the host can ``wait``.

        Raises IntegratorError where it cannot come any more; then nothing is pending.
        """
        if not self.pending:
            return None
        self.pending = False
        if not (wait or self.integrator.ready()):
            self.pending = True
            return None
        step = self._index - self._before - 1
        self.integrator.step(self._force)
        if self._controller is not None:
            self._auxiliary = self._controller.step(self._measured, self._ground_acceleration[step])
        return self._target(self.external_force[step])

    def _target(self, external: Array) -> Target:
        solver, ratio = self.integrator, self._ratio
        velocity, acceleration, exact = solver.velocity, solver.acceleration, solver.exact_acceleration
        if ratio != 1:  # on the wire stands the motion of the rig
            velocity, acceleration, exact = velocity / ratio, acceleration / ratio**2, exact / ratio**2
        restoring, auxiliary = solver.restoring_force, self._auxiliary
        return Target(
            self._index, solver.displacement, velocity, acceleration, exact, external, restoring, auxiliary
        )


def force_lead_of(scenario: Scenario, integrator: Integrator) -> ForceLead | None:
    """What makes up for the delay of the forces in ``scenario``; None where that is not asked for."""
    if scenario.force_lead is None:
        return None
    step = scenario.samples_per_step
    samples = scenario.force_lead * scenario.servo_rate + integrator.force_age * step
    return ForceLead(samples, step, len(scenario.axes))
