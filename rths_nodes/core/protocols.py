# SPDX-License-Identifier: Apache-2.0
"""Protocols of all component families.

A *component* has a frozen ``Params`` class. Its constructor checks parameters, allocates memory and factorises
matrices. ``step`` does only arithmetic, and ``reset()`` restores the initial state exactly. Components share no
state, so two of them may run in parallel (``step_warm_up``). All units are SI. Arrays have the shape
``(n_axes,)`` or ``(n_dof,)``. A component of one axis (actuator, specimen) uses plain floats, which are faster. A
returned array is valid until the component's next ``step``. Copy the array to keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from rths_nodes.core.control import Compensator as Compensator
from rths_nodes.core.control import ForceController as ForceController
from rths_nodes.core.control import Ramp as Ramp
from rths_nodes.core.control import SemiActive as SemiActive
from rths_nodes.core.control import Setup as Setup
from rths_nodes.core.data import Data
from rths_nodes.core.errors import PortError
from rths_nodes.core.expressions import Unit
from rths_nodes.core.samples import (
    EMPTY,
    HYDRAULICS_NOT_TOLD,
    HYDRAULICS_OFF,
    INTERLOCK_OPEN,
    Array,
    Command,
    Measurement,
)
from rths_nodes.core.simulators import Actuator as Actuator
from rths_nodes.core.simulators import Rig as Rig
from rths_nodes.core.simulators import Specimen as Specimen


class StepMatrices(NamedTuple):
    """Matrices of one step of an integrator: y_{i+1} = A y_i + B f_i, (x, v, a) = C y_i + D f_i.

    The state of the integrator is y ``(m,)``, and the measured force is f ``(n_dof,)`` N. x, v, a ``(3 n_dof,)``
    are displacement (m), velocity (m/s) and acceleration (m/s^2) of Target i+1 for small motions. The fields
    contain A, B, C and D.
    """

    onward: Array
    force: Array
    target: Array
    through: Array


class GroundMotion(Protocol):
    """Excitation as a function of time.

    The class attribute ``proportional_to`` of ``Params`` names the parameter to which all values are proportional.
    Without this attribute a test cannot be run at a reduced level.
    """

    Params: ClassVar[type]

    def __init__(self, params: object, seed: int) -> None: ...

    def sample(self, times: Array) -> Array:
        """Return the excitation ``(len(times),)`` at ``times`` (s), in m/s^2, or m if used as a displacement."""
        ...


class StructuralForce(Protocol):
    def force(self, displacement: Array) -> Array: ...

    def reset(self) -> None: ...


class RestoringForce(StructuralForce, Protocol):
    """Restoring force as a component, computed separately for each degree of freedom."""

    Params: ClassVar[type]
    initial_stiffness: float
    """Stiffness before yield, N/m."""
    elastic_energy: float
    """Strain energy at first yield, J; zero for a linear force."""

    def __init__(self, params: object, n_dof: int) -> None: ...


class Damping(Protocol):
    Params: ClassVar[type]

    def __init__(self, params: object) -> None: ...

    def matrix(self, mass: Array, stiffness: Array) -> Array:
        """Return the symmetric damping matrix ``(n_dof, n_dof)`` N s/m for a mass (kg) and stiffness (N/m)."""
        ...


class Structure(Protocol):
    """Numerical substructure: mass (kg), damping (N s/m), stiffness (N/m) and influence ``(n_dof,)``.

    Matrices are ``(n_dof, n_dof)``, sparse if large (``mechanics/structure.py``). The ``experimental_`` matrices
    are known values of the physical part, or zero if unknown. The whole structure is the sum of both parts.
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
    """Load on the numerical substructure at a ground acceleration of -1 m/s^2, ``(n_dof,)`` N."""
    elastic_energy: float
    """Strain energy at first yield, J; zero for a linear structure."""
    restoring_force: StructuralForce


class Reduction(Protocol):
    """Replaces the degrees of freedom x of a linear structure by fewer coordinates q: x = T q with shapes T."""

    Params: ClassVar[type]

    def __init__(self, params: object) -> None: ...

    def basis(self, structure: Structure, places: Sequence[int]) -> tuple[Array, tuple[str, ...]]:
        """Return the shapes T as columns ``(n_dof, m)``, and the names of the m coordinates.

        ``places`` are the indices of the interface degrees of freedom.
        """
        ...


class Integrator(Protocol):
    """Solves the equation of motion one step at a time.

    After construction and ``reset`` the integrator is at step 0. ``step(force)`` takes the force ``(n_dof,)`` N of
    the experimental substructure at the current step, and advances to the next step. Arrays are ``(n_dof,)``.

    An integrator in this process inherits from this class and implements ``step`` and ``reset``. An integrator in
    another process or on a network declares itself ``external``. It connects in ``open``, not in its constructor.
    ``step`` may block, so a real-time loop checks ``ready`` first.
    """

    Params: ClassVar[type]
    external: ClassVar[bool] = False
    late_velocity: ClassVar[bool] = False
    """True if the published ``velocity`` lags the published ``displacement``."""
    follows: ClassVar[bool] = False
    """True if the restoring forces may be changed between steps (``renew``)."""
    displacement: Array
    velocity: Array
    acceleration: Array
    exact_acceleration: Array
    restoring_force: Array
    period: int = 1
    """Number of steps after which the step matrices of the integrator repeat."""
    force_age: float = 0.0
    """Mean delay of the measured force, in steps; 0.5 for a force held constant during the step."""

    def __init__(self, params: object, structure: Structure | None, external_force: Array, dt: float) -> None: ...

    def excite(self, ground_acceleration: Array) -> None:
        """Receive the ground acceleration ``(steps + 1,)`` m/s^2. The default implementation ignores it."""

    def open(self) -> None:
        """Start an external part or listen for its connection before the test, without waiting."""

    def missing(self) -> str:
        """Return the reason why step 0 has not been reached since ``open``; empty once it has been reached.

        Raises ConfigError if step 0 cannot be reached.
        """
        return ""

    def begin(self, experimental_force: Array) -> None:
        """Begin the next ``step`` by sending the force to an external part."""

    def ready(self) -> bool:
        """Return whether ``step`` would return without blocking."""
        return True

    def step(self, experimental_force: Array) -> None:
        """Advance by one step. The force is the same as in ``begin``.

        An external integrator raises IntegratorError if it gets no answer, and ClientLeft if its client has ended
        normally. ``ready`` may also raise IntegratorError.
        """
        ...

    def reset(self) -> None: ...

    def rehearsed(self) -> Array:
        """Return the computing times (s) of trial steps without a rig; an empty array if unknown."""
        return EMPTY

    def renew(self, name: str, change: Callable[..., tuple[object, object]]) -> None:
        """Replace ``constants, memory`` of the restoring force ``name`` by ``change(constants, memory)``."""
        raise TypeError("this integrator does not support changes of a restoring force")

    def finish(self, experimental_force: Array) -> None:
        """Receive the force at the last step. An external part may wait for this force."""

    def numbers(self) -> Data:
        """Return additional results of the test for the recording, nested by name."""
        return {}

    def close(self) -> None:
        """Release the resources of ``open``. May be called at any time."""

    def linearised(self) -> Sequence[StepMatrices]:
        """Return the matrices of ``period`` successive steps, for a linear structure and zero external force.

        Return an empty sequence if the matrices are unknown; ``rths stability`` then refuses the test.
        """
        return ()


OPENED = "rig: its interlock is open: no actuator follows"
WITHOUT_PRESSURE = "rig: its hydraulics are off: no actuator follows"


@dataclass(frozen=True)
class FarEnd:
    """Limits reported by the far end of a port. Arrays have one value per axis.

    Stroke is in m, velocity in m/s, deceleration in m/s^2, and force in N. ``error`` (m) limits the difference
    between command and measured displacement; inf means no limit. If commands are missing, the far end
    extrapolates for ``bridged`` samples and then brakes. The session ends after ``watchdog`` samples without a
    command.
    """

    stroke: Array
    velocity: Array
    deceleration: Array
    force: Array
    error: Array
    bridged: int
    watchdog: int


@dataclass(frozen=True)
class ReportedState:
    """Measurement of the far end, number of the newest received command, and reason why the far end stopped."""

    measured: Measurement
    newest: int
    stopped: str


class Listener(Protocol):
    """Receives the states of an open session, but sends no commands.

    A listener and its socket can be pickled (``multiprocessing``), and so outlive the process that drives the rig.
    """

    def states(self, seconds: float) -> list[ReportedState]:
        """Return the states received since the last call, after waiting up to ``seconds`` s if there are none."""
        ...

    def stop(self) -> None:
        """End the session. The far end then brakes and holds the axes."""

    def close(self) -> None: ...


class OfPort(Protocol):
    """Optional members of a port, which ``laboratory/ports/wrappers.py`` adds to ports of other packages."""

    follows_rig: bool = False
    """True if the rig sets the ticks: the port sends Commands without delay and calls ``pacer`` at each tick."""
    in_lockstep: bool = False
    """True if the rig is an emulator that waits for every Command."""
    wait: Callable[[float], None] | None = None
    """Function that waits at most the given time (s) for a message from the rig; required with ``follows_rig``."""
    address: str = ""
    label: str = "port"
    """Name of the port in messages."""
    trigger: object = None
    """Digital output of the rig that is on during a test (``laboratory/ports/common.py``)."""
    can_warn: bool = False
    """True if :meth:`warn` can switch a horn or a lamp. Valid once the port is open."""
    armed: bool = False
    """True if an operator has armed the port. A test may then open the port although real actuators can move."""
    paced: bool = False
    """True if a clock or the rig sets the ticks after a procedure has opened the port."""
    handover: Any = None
    """Data that a procedure passes to a test (``loop/supervision/handover.py``)."""

    @property
    def failure(self) -> str:
        """Reason why the rig cannot continue, or an empty string."""
        return ""

    @property
    def counter_at_start(self) -> int | None:
        """Value of the rig's own counter at sample 0; None if the rig has no counter."""
        return None

    def drop_heartbeat(self) -> None:
        """Stop sending the heartbeat to the far end, which then stops the rig."""
        return

    def numbers(self) -> dict[str, float]:
        return {}

    def accept_any_start(self) -> None:
        """Let a procedure open the port at any active command, even far from the first Command."""
        return

    def warn(self, on: bool) -> None:
        """Switch the warning output on or off, from the next command on; only called if ``can_warn`` is true."""
        raise PortError("this port has no warning output")

    def set_interlock(self, closed: bool) -> None:
        raise PortError("the interlock of this rig cannot be switched by software")

    def set_hydraulics(self, pressure: str) -> None:
        raise PortError("the pressure of this rig cannot be switched by software")


class Readback(Protocol):
    """Readings of an open port, with defaults for ports that lack them."""

    @property
    def active_command(self) -> Array | None:
        """Commands ``(n_axes,)`` m that the controllers follow, in controller coordinates; None if not readable.

        The first Command must start at these displacements.
        """
        return None

    @property
    def hydraulics(self) -> int:
        """Hydraulic pressure: HYDRAULICS_OFF, _LOW, _HIGH, or HYDRAULICS_NOT_TOLD."""
        return HYDRAULICS_NOT_TOLD

    @property
    def control_mode(self) -> bytes:
        """Control modes MODE_..., one byte per axis; empty if unknown."""
        return b""

    @property
    def heartbeat(self) -> int | None:
        """Heartbeat counter for the rig; advances only with processed samples. None without a heartbeat."""
        return None

    @property
    def build(self) -> str:
        """Identifier of the far end's build; empty if not reported."""
        return ""

    @property
    def stated(self) -> FarEnd | None:
        """Limits reported by the far end of an open port; None if not reported."""
        return None

    @property
    def ear(self) -> Listener | None:
        """Listener to the open session; None if not supported."""
        return None


def why_opened(port: Any, measured: Measurement) -> str:
    """Return the reason why the interlock of ``port`` stops the rig, or an empty string."""
    return port.interlock or (OPENED if measured.interlock == INTERLOCK_OPEN else "")


def why_failed(port: OfPort, hydraulics: int) -> str:
    """Return the reason why the rig of ``port`` cannot continue or move, or an empty string."""
    if port.failure:
        return f"rig: {port.failure}"
    return WITHOUT_PRESSURE if hydraulics == HYDRAULICS_OFF else ""


class Port(OfPort, Readback, Protocol):
    """Connects to a rig and defines the ticks of the test.

    The constructor has no effect outside the process. ``simulated`` is true if no real actuator can move.
    ``Params`` has ``transport_samples`` and ``longest_wait`` (s), and may declare members of
    :class:`rths_nodes.core.parameters.OfPortParams`.

    A port of another package may omit members of :class:`Readback` and :class:`OfPort`.
    """

    external: bool
    """True if the port cannot be copied, e.g. because its rig is real."""
    simulated: bool
    transport_samples: int
    auxiliary_names: tuple[str, ...]
    """Names of the measured auxiliary channels, with units, e.g. ``acceleration_1 [m/s^2]``."""
    auxiliary_inputs: tuple[str, ...]
    """Names of the auxiliary channels of a command, with units, e.g. ``damper_voltage [V]``."""

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        """Connect to the rig, which is then at sample 0.

        ``pacer`` waits for the next tick of the computer's clock and returns the number of missed ticks. A
        simulator without ``pacer`` runs at full speed.
        """

    def begin(self) -> None:
        """Begin the test: request Measurement 0."""

    def arm_watchdog(self) -> None:
        """Start the watchdog of the far end before a test in real time. The far end then expects commands."""

    def disarm_watchdog(self) -> None: ...

    @property
    def interlock(self) -> str:
        """Reason why the rig no longer follows commands, or an empty string.

        A reason trips the test before any limit is checked.
        """

    @property
    def partial_stop(self) -> str:
        """Message about a part of the rig that has stopped by itself, or an empty string.

        A message trips the test after all limit checks.
        """

    def wait_tick(self) -> int:
        """Wait for the next tick and return its sample number."""

    def write(self, command: Command) -> None:
        """Send the Command of the tick. The port copies the data that it keeps.

        In a safe stop the Command carries FLAG_TRIPPED, and its target equals its command.
        """

    def ready(self) -> bool:
        """Return whether the Measurement of the tick is available, without waiting."""

    def read(self) -> Measurement:
        """Return the Measurement of the tick, once ready. After :meth:`begin`, this is Measurement 0."""

    def truth(self) -> Measurement | None:
        """Return the noise-free state of the rig at the tick; None if unknown, e.g. for a real rig."""

    def safe(self) -> None:
        """Put the rig into its own safe state. Must work at any time."""

    def close(self) -> None:
        """Release the resources of :meth:`open` and :meth:`arm_watchdog`."""


def drops_heartbeat(port: object) -> bool:
    return hasattr(port, "drop_heartbeat") and port.drop_heartbeat is not OfPort.drop_heartbeat


class Quantity(Protocol):
    """Computes one value per sample from the values of the expressions in the field ``of`` of ``Params``."""

    def __init__(self, params: object, dt: float) -> None: ...

    def unit(self, units: Sequence[Unit]) -> Unit:
        """Return the quantity's unit, given the units of its expressions. Raises ValueError if they do not fit."""

    def step(self, values: Sequence[float]) -> float:
        """Return the quantity at the next sample from the ``values`` of its expressions, all in SI units."""
