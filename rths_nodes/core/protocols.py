# SPDX-License-Identifier: Apache-2.0
"""The protocols of all component families.

A *component* is a frozen ``Params`` class and a constructor that checks, allocates and factorises; ``step``
does arithmetic only; ``reset()`` brings back exactly the first state. Objects share no state: a second one may be
stepped beside the first (``loop/warm_up.py``). SI units everywhere. Arrays have the shape ``(n_axes,)`` or
``(n_dof,)``; a component that belongs to one axis (actuator, specimen) works in plain floats, which is several
times faster than arrays of length one. A returned array belongs to the component and is valid until its next
``step``: a caller that keeps it copies it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Protocol

from rths_nodes.core.actuator import Actuator as Actuator
from rths_nodes.core.control import Compensator as Compensator
from rths_nodes.core.control import ForceController as ForceController
from rths_nodes.core.control import Ramp as Ramp
from rths_nodes.core.control import SemiActive as SemiActive
from rths_nodes.core.control import Setup as Setup
from rths_nodes.core.data import Data
from rths_nodes.core.declarations import OfPort
from rths_nodes.core.dimensions import Unit
from rths_nodes.core.readback import Readback
from rths_nodes.core.rig import Rig as Rig
from rths_nodes.core.samples import EMPTY, Array, Command, Measurement
from rths_nodes.core.specimen import Specimen as Specimen


class StepMatrices(NamedTuple):
    """One step of an integrator at small motion: y' = A y + B f, (x, v, a) = C y + D f.

    y ``(m,)`` is what it remembers from step to step; f ``(n_dof,)`` N the measured force at the step; x, v, a
    ``(3 n_dof,)`` displacement (m), velocity (m/s) and acceleration (m/s^2) of the Target that it makes of them.
    """

    onward: Array
    """A ``(m, m)``."""
    force: Array
    """B ``(m, n_dof)``."""
    target: Array
    """C ``(3 n_dof, m)``."""
    through: Array
    """D ``(3 n_dof, n_dof)``."""


class GroundMotion(Protocol):
    """An excitation as a function of time.

    Its ``Params`` has the class attribute ``proportional_to``: the name of the parameter that all values are
    proportional to. Without it a test cannot be run at a reduced level.
    """

    Params: ClassVar[type]

    def __init__(self, params: object, seed: int) -> None: ...

    def sample(self, times: Array) -> Array:
        """Values at ``times`` (s), shape ``(len(times),)``: m/s^2, or m when used as a displacement."""
        ...


class StructuralForce(Protocol):
    """Restoring force of the numerical substructure, ``(n_dof,)`` N, with its memory."""

    def force(self, displacement: Array) -> Array:
        """Move to ``displacement`` (m) and give the force there."""
        ...

    def reset(self) -> None: ...


class RestoringForce(StructuralForce, Protocol):
    """The restoring force of every degree of freedom by itself, as a component."""

    Params: ClassVar[type]
    initial_stiffness: float
    """N/m."""
    elastic_energy: float
    """Strain energy at first yield, J; zero for a linear one."""

    def __init__(self, params: object, n_dof: int) -> None: ...


class Damping(Protocol):
    """Viscous damping of a whole structure, formed once from its matrices."""

    Params: ClassVar[type]

    def __init__(self, params: object) -> None: ...

    def matrix(self, mass: Array, stiffness: Array) -> Array:
        """Damping ``(n_dof, n_dof)`` N s/m, symmetric, from mass (kg) and stiffness (N/m) of the same shape."""
        ...


class Structure(Protocol):
    """Numerical substructure: matrices ``(n_dof, n_dof)`` in kg, N s/m, N/m and influence ``(n_dof,)``.

    The matrices of a large one are kept sparse (``mechanics/sparse.py``), all of them.

    The ``experimental_`` matrices are what is known before the test of the part that stands in the laboratory;
    the whole structure is the sum. They are zero where nothing is known.
    """

    Params: ClassVar[type]
    names: tuple[str, ...]
    mass: Array
    damping: Array
    stiffness: Array
    experimental_mass: Array
    experimental_damping: Array
    experimental_stiffness: Array
    influence: Array
    ground_load: Array
    """``(n_dof,)`` N: load of the numerical substructure per acceleration of the ground (m/s^2), reversed."""
    elastic_energy: float
    """Strain energy at first yield, J; zero for a linear structure."""
    restoring_force: StructuralForce


class Reduction(Protocol):
    """A few shapes T in place of the degrees of freedom of a linear structure, x = T q."""

    Params: ClassVar[type]

    def __init__(self, params: object) -> None: ...

    def basis(self, structure: Structure, places: Sequence[int]) -> tuple[Array, tuple[str, ...]]:
        """Shapes as columns ``(n_dof, m)``, names of their coordinates; the interface stands at ``places``."""
        ...


class Integrator(Protocol):
    """Solves the equation of motion one step at a time.

    After construction and ``reset`` it stands at step 0; ``step(force)`` gets the force of the experimental
    substructure at the current step ``(n_dof,)`` N and goes to the next one. All attributes ``(n_dof,)``.

    An integrator that computes in this process inherits from this class and implements ``step`` and ``reset``.
    One that is answered from outside, by a process or over a network, declares itself ``external``: its
    constructor touches nothing outside, ``open`` connects (it stands at step 0 once nothing is ``missing``),
    ``begin`` sends the force, and ``step`` takes the answer. Until ``ready``, ``step`` would block, so a loop in
    real time asks first. With ``observes = True`` in its ``Params`` it tells, without a structure, more than the
    displacements that the axes take: those ``observed``.
    """

    Params: ClassVar[type]
    external: ClassVar[bool] = False
    """True for one of which there can be no second copy."""
    late_velocity: ClassVar[bool] = False
    """True where ``velocity``, as published, is that of a moment before ``displacement``."""
    follows: ClassVar[bool] = False
    """True for one whose restoring forces may be renewed from step to step (``renew``)."""
    displacement: Array
    velocity: Array
    acceleration: Array
    exact_acceleration: Array
    restoring_force: Array
    period: int = 1
    """Steps after which it does the same again."""
    force_age: float = 0.0
    """Steps by which it takes the measured force late, on the mean: half a one where it holds it over the step."""

    def __init__(self, params: object, structure: Structure | None, external_force: Array, dt: float) -> None: ...

    def excite(self, ground_acceleration: Array) -> None:
        """Take the acceleration of the ground ``(steps + 1,)`` m/s^2, for one that has no external force of it."""

    def open(self) -> None:
        """Before the test: start what answers from outside, or be there for it, without waiting for it."""

    def missing(self) -> str:
        """Say what the test has to wait for since ``open``; empty once the integrator stands at step 0.

        Raises ConfigError where it never will.
        """
        return ""

    def begin(self, experimental_force: Array) -> None:
        """The force of the coming ``step`` is known: let what answers from outside begin to work on it."""

    def ready(self) -> bool:
        """True when ``step`` would not wait."""
        return True

    def step(self, experimental_force: Array) -> None:
        """Go to the next step; the force is that of ``begin``.

        One that is answered from outside raises IntegratorError when the answer cannot come any more, as may
        ``ready``; ClientLeft where what is outside has ended in order.
        """
        ...

    def reset(self) -> None: ...

    def rehearsed(self) -> Array:
        """In place of a test: how long each step takes without a rig, s; empty where nobody can tell."""
        return EMPTY

    def renew(self, name: str, change: Callable[..., tuple[object, object]]) -> None:
        """Change constants and memory of the restoring force ``name``: ``change`` gives them for those of now."""
        raise TypeError("an integrator that follows nothing")

    def finish(self, experimental_force: Array) -> None:
        """The force at the last step of the test, which no further ``step`` takes: one outside may wait for it."""

    def numbers(self) -> Data:
        """After the test: what the recording keeps of it beside the Targets, numbers nested by their names."""
        return {}

    def close(self) -> None:
        """After the test: give back what ``open`` took; may be called again, or without it."""

    def linearised(self) -> Sequence[StepMatrices]:
        """The ``period`` steps of one built for a linear structure and no external force, as it takes them.

        What ``rths stability`` judges. Empty where nothing is known of them: such a test is refused there.
        """
        return ()


class Port(OfPort, Readback, Protocol):
    """The way to a rig, and the owner of the tick. The simulator is its first implementation.

    The constructor touches nothing outside the process: that is left to ``open``. ``simulated`` is true where no
    real actuator can move. Its ``Params`` has ``transport_samples`` and ``longest_wait`` (s), as that of the
    simulator, and may declare what stands in :class:`rths_nodes.core.declarations.OfPortParams`.

    Whatever a port of another package raises is told with its type, its address and what was tried. It may leave
    out what it cannot read back (:class:`Readback`), and what stands in
    :class:`rths_nodes.core.declarations.OfPort` with what holds then.
    """

    external: bool
    """True for one of which there can be no second copy: a real rig."""
    simulated: bool
    transport_samples: int
    auxiliary_names: tuple[str, ...]
    """Names of the measured auxiliary channels, with their units: ``acceleration_1 [m/s^2]``."""
    auxiliary_inputs: tuple[str, ...]
    """Names of the auxiliary channels of a command, with their units: ``damper_voltage [V]``."""

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        """Connect to the rig, which stands at sample 0.

        ``pacer`` waits for the next tick of the computer's clock and gives the ticks that were missed; it is for
        simulators, and without it they run as fast as they can. A real rig has a clock of its own.
        """

    def begin(self) -> None:
        """The test begins: ask the rig for Measurement 0."""

    def arm_watchdog(self) -> None:
        """Before the test, in real time: the machine behind the port begins to expect commands."""

    def disarm_watchdog(self) -> None:
        """After the test: no more commands will come, in order."""

    @property
    def interlock(self) -> str:
        """Why the rig does not follow commands any more, in words; empty while it does.

        It trips the test before any limit is checked: there may be no measurement to check.
        """

    @property
    def partial_stop(self) -> str:
        """Which part of the rig has stopped by itself, in words; empty while none has.

        It trips the test after the limits are checked: a limit that stopped that part is the better reason.
        """

    def wait_tick(self) -> int:
        """Wait for the next tick and give its sample number."""

    def write(self, command: Command) -> None:
        """Send the Command of the tick. What the port keeps of it, it copies.

        In a safe stop it carries FLAG_TRIPPED, and its target is its command.
        """

    def ready(self) -> bool:
        """True when the Measurement of the tick is there; never waits. A simulator has it at once."""

    def read(self) -> Measurement:
        """The Measurement of the tick, or Measurement 0 after :meth:`begin`; to be called once it is ready."""

    def truth(self) -> Measurement | None:
        """The true, noise-free state of the tick; None where it is not known, as on a real rig."""

    def safe(self) -> None:
        """Leave the rig to its own safe state; must work at any time."""

    def close(self) -> None:
        """Give back what :meth:`open` and :meth:`arm_watchdog` took."""


class Quantity(Protocol):
    """A number for each sample. Its ``Params`` has ``of``: the texts of the expressions that it is made from."""

    def __init__(self, params: object, dt: float) -> None:
        """At rest; ``dt`` s."""

    def unit(self, units: Sequence[Unit]) -> Unit:
        """Return its own unit, from those of its expressions. Raises ValueError where they make no sense."""

    def step(self, values: Sequence[float]) -> float:
        """Return its value at the next sample, from the values of its expressions there; all in SI units."""
