# SPDX-License-Identifier: Apache-2.0
"""Attributes that components declare, with defaults that the registry fills in, and the readings of a port."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from rths_nodes.core import checks
from rths_nodes.core.errors import PortError
from rths_nodes.core.parameters import params
from rths_nodes.core.samples import HYDRAULICS_NOT_TOLD, HYDRAULICS_OFF, INTERLOCK_OPEN, Array, Measurement

AnyParams: TypeAlias = Any
"""``Params`` of any component; subclasses annotate their own class."""


class OfComponent:
    external: ClassVar[bool] = False
    """True for a component with a socket, a process or a rig, which cannot be copied."""
    transport_in_lead: ClassVar[bool] = False
    SOURCES: ClassVar[tuple[str, ...]] = ()
    """Keys of the component's publications in ``config/publications.bib``."""


OPENED = "rig: its interlock is open: no actuator follows"
WITHOUT_PRESSURE = "rig: its hydraulics are off: no actuator follows"


@dataclass(frozen=True)
class FarEnd:
    """Holds the limits reported by the far end of a port. Arrays have one value per axis.

    Stroke is in m, velocity in m/s, deceleration in m/s^2, and force in N. ``error`` (m) limits the difference
    between command and measured displacement; inf means no limit. Without commands, the far end extrapolates for
    ``bridged`` samples and then brakes. After ``watchdog`` samples without commands the session ends.
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
    """Holds a Measurement of the far end, the number of the newest received command, and the reason for a stop."""

    measured: Measurement
    newest: int
    stopped: str


class Listener(Protocol):
    """Receives the states of an open session; sends no commands.

    ``multiprocessing`` can pickle a listener with its socket, so that it can outlive the driving process.
    """

    def states(self, seconds: float) -> list[ReportedState]:
        """Return the states received since the last call; if there are none, wait up to ``seconds``."""
        ...

    def stop(self) -> None:
        """End the session: the far end brakes and holds."""

    def close(self) -> None: ...


class OfPort(Protocol):
    """Declares optional members; ``laboratory/ports/wrappers.py`` adds them to ports of other packages."""

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
    """True if :meth:`warn` can switch a horn or a lamp; valid once the port is open."""
    armed: bool = False
    """True if an operator has armed the port. A test may then open the port although real actuators can move."""
    paced: bool = False
    """True if a clock or the rig sets the ticks after a procedure has opened the port."""
    handover: Any = None
    """Data that a procedure hands over to a test (``loop/supervision/handover.py``)."""

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
        """Accept any active command when a procedure opens the port."""
        return

    def warn(self, on: bool) -> None:
        """Switch the warning output on or off, from the next command on; only called if ``can_warn`` is true."""
        raise PortError("this port has no warning output")

    def set_interlock(self, closed: bool) -> None:
        raise PortError("the interlock of this rig cannot be switched by software")

    def set_hydraulics(self, pressure: str) -> None:
        raise PortError("the pressure of this rig cannot be switched by software")


class Readback(Protocol):
    """Declares readings of an open port, with defaults for ports that lack them."""

    @property
    def active_command(self) -> Array | None:
        """Commands ``(n_axes,)`` m that the controllers follow, in controller coordinates; None if not readable.

        The first Command must start at these displacements.
        """
        return None

    @property
    def hydraulics(self) -> int:
        """Pressure: HYDRAULICS_OFF, _LOW, _HIGH, or HYDRAULICS_NOT_TOLD."""
        return HYDRAULICS_NOT_TOLD

    @property
    def control_mode(self) -> bytes:
        """Control modes MODE_..., one byte per axis; empty if unknown."""
        return b""

    @property
    def heartbeat(self) -> int | None:
        """Heartbeat counter, which the rig monitors. The counter advances only with processed samples."""
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
    """Return the reason why the interlock of ``port`` stops the rig; empty if it does not."""
    return port.interlock or (OPENED if measured.interlock == INTERLOCK_OPEN else "")


def why_failed(port: OfPort, hydraulics: int) -> str:
    """Return the reason why the rig of ``port`` cannot continue or move; empty if it can."""
    if port.failure:
        return f"rig: {port.failure}"
    return WITHOUT_PRESSURE if hydraulics == HYDRAULICS_OFF else ""


class OfParams(checks.ChecksScenario):
    """Declares attributes of every ``Params``. A parameter of the same name takes precedence."""

    type_name: ClassVar[str]
    cannot_be_built: str = ""
    """Reason why a recorded component cannot be built here, or an empty string."""


class OfPortParams(OfParams):
    transport_samples: int
    """Number of samples until a Command takes effect."""
    longest_wait: float
    """Time without a Command after which the port fails, s."""
    builds_axes: bool = False
    """True if models replace the rig. The test then needs a ``rig``, or an actuator and a specimen per axis."""
    carries_force: bool = False
    """True if the port accepts Commands in newtons, for force loops closed by the controller."""
    can_be_switched: bool = False
    """True if a simulated fault can switch the pressure and the interlock of the rig."""
    one_node: bool = False
    """True if one node must drive all axes."""
    watchdog: float | None = None
    """Time without a command after which the port itself holds the rig, s."""
    emulator: bool = False
    """True if the far end is a program that emulates a rig."""
    stand_in: bool = False
    """True if the far end reports that nothing can move."""
    has_heartbeat: bool | None = None
    """True if the far end stops the rig when the heartbeat ends; None: true for a port with ``drop_heartbeat``."""


class OfIntegratorParams(OfParams):
    observes: bool = False
    """True if an integrator without a structure also returns displacements of degrees of freedom that have no
    axis; the scenario lists them as ``observed``."""
    who: str = ""
    """Part of the integrator that defines the excitation; empty if the scenario defines the excitation."""
    experimental_stiffness: Any = None
    """Specimen stiffness that an external integrator assumes, ``(n_dof, n_dof)`` N/m."""
    equivalent_damping: object = None
    """Specimen damping that an external integrator assumes, N s/m."""
    displacement: Any = None
    history: str | None = None
    proportional_to: str = ""
    """Parameter to which all targets from a file are proportional, or an empty string."""
    ground: object = None
    """Input of an external integrator that receives the ground motion of the scenario."""


class OfStructureParams(OfParams):
    gravity_loads: tuple[float, ...] | None = None
    """Gravity loads whose P-Delta effect the structure computes, N."""
    experimental_gravity_loads: tuple[float, ...] | None = None
    """Gravity loads that the rig applies, N; None if not declared."""

    def laws(self) -> Mapping[str, OfParams]:
        """Return the parameters of the structure's restoring forces, including their stiffness, by name."""
        return {}


class OfGroundMotionParams(OfParams):
    proportional_to: str = ""


class OfCompensatorParams(OfParams):
    lead: float
    """Time by which the target is extrapolated, s; used only if the compensator has this parameter."""
    known: Any = None
    """Constants of the rig that replace a model file."""
    inverse: Any = None
    """Gains of an identified inverse that replace a model file."""


class OfSemiActiveParams(OfParams):
    voltage: float = 0.0


class OfRigParams(OfParams):
    to_scale: bool = False
    """True if the setup converts all quantities of the rig, so that the specimen may be a scale model."""


class OfForceControllerParams(OfParams):
    stiffness: float | None = None
    """Stiffness against which the actuator pushes, N/m; None if unknown."""
    column: object = None
    """Lengths of a column (``mechanics/axial_load.py``) whose head a displacement axis moves; None: no column."""
    coupled_to: int = 1
    """Number, from 1, of the displacement axis that moves the head of the column."""


_PARAMS: dict[str, type[OfParams]] = {
    "port": OfPortParams,
    "integrator": OfIntegratorParams,
    "structure": OfStructureParams,
    "ground_motion": OfGroundMotionParams,
    "compensator": OfCompensatorParams,
    "semi_active": OfSemiActiveParams,
    "force_controller": OfForceControllerParams,
    "rig": OfRigParams,
}


_RECORDED: dict[str, dict[str, object]] = {
    "port": {"transport_samples": 0, "longest_wait": math.inf, "has_heartbeat": False},
    "integrator": {"observes": True},
}


def of_params(family: str) -> type[OfParams]:
    return _PARAMS.get(family, OfParams)


def of_recorded(family: str) -> type[OfParams]:
    return type("Recorded", (of_params(family),), _RECORDED.get(family, {}))


def complete(family: str, component: Any) -> None:
    checks.complete(component, OfComponent)
    checks.complete(component.Params, of_params(family))


def name(family: str, type_name: str, component: Any) -> None:
    """Complete a ``component`` class and set ``type_name`` of its ``Params``. Inherited ``Params`` are copied."""
    if "Params" not in vars(component):
        component.Params = params(type("Params", (component.Params,), {}))
    component.Params.type_name = type_name
    complete(family, component)


def drops_heartbeat(port: object) -> bool:
    return hasattr(port, "drop_heartbeat") and port.drop_heartbeat is not OfPort.drop_heartbeat
