# SPDX-License-Identifier: Apache-2.0
"""Declarations of a component about itself, with what holds where it leaves them out: the registry fills these in.

So whoever asks finds each of them, on a component of this package or of another one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, TypeAlias

from rths_nodes.core import checks
from rths_nodes.core.errors import PortError

AnyParams: TypeAlias = Any
"""The ``Params`` of some component: a base class takes any, as each of its subclasses names its own."""


class OfComponent:
    """Attributes of the class of any component."""

    external: ClassVar[bool] = False
    """It speaks to a socket, a process or a rig: there is no second one of it."""
    SOURCES: ClassVar[tuple[str, ...]] = ()
    """Keys of the publications that describe it, in ``config/publications.bib``."""


class OfCompensator(OfComponent):
    """Attributes of the class of a compensator."""

    transport_in_lead: ClassVar[bool] = False
    """The scenario adds the port's transport to the parameter ``lead``: its model leaves that out."""


class OfPort(Protocol):
    """Members that a port may have, or leave out, beside those of every port.

    A port of this package inherits from this class. One of another package needs not: it gets what it leaves out
    where it is named (``laboratory/ports/named.py``).
    """

    follows_rig: bool = False
    """The rig gives the ticks: a Command is sent when it is written, ``pacer`` is called at each tick."""
    in_lockstep: bool = False
    """Such a rig, an emulator, waits for every Command."""
    wait: Callable[[float], None] | None = None
    """Waits until something comes of the rig, for so many s at most; one that follows its rig has it."""
    address: str = ""
    """Place of the rig, in words."""
    label: str = "port"
    """Name of the port in what refuses it."""
    trigger: object = None
    """A digital output of the rig that tells when a test runs (``laboratory/ports/trigger.py``)."""
    can_warn: bool = False
    """Presence of an output for a horn or a lamp, which :meth:`warn` switches; valid once the port is open."""
    armed: bool = False
    """An operator has armed it, so that a test may open it though real actuators can move."""
    paced: bool = False
    """Its ticks come by a clock, or from the rig, where a procedure has opened it."""
    handover: Any = None
    """Place from which a test behind a procedure counts (``loop/supervision/handover.py``)."""

    @property
    def failure(self) -> str:
        """Why the rig has failed and cannot go on, in words; empty while it can."""
        return ""

    @property
    def counter_at_start(self) -> int | None:
        """Number on the rig's own counter at sample 0; None where nobody knows it."""
        return None

    def drop_heartbeat(self) -> None:
        """Give no more signs of life to the far end, which then stops the rig by itself."""
        return

    def numbers(self) -> dict[str, float]:
        """After the test: return what the port has counted."""
        return {}

    def accept_any_start(self) -> None:
        """Take it that the first command will be the active one, wherever that is: a procedure opens the port."""
        return

    def warn(self, on: bool) -> None:
        """Switch the warning output, from the next command on; only called if the port ``can_warn``."""
        raise PortError("this port has no warning output")

    def set_interlock(self, closed: bool) -> None:
        """Open the interlock of a rig that can be switched, or close it again."""
        raise PortError("the interlock of this rig cannot be switched on purpose")

    def set_hydraulics(self, pressure: str) -> None:
        """Switch the pressure of a rig that can be switched: off, low or high."""
        raise PortError("the pressure of this rig cannot be switched on purpose")


class OfParams(checks.ChecksScenario):
    """Attributes of the ``Params`` of any component; where it has a parameter of such a name, that one counts."""

    type_name: ClassVar[str]
    """Name under which the component is registered."""
    cannot_be_built: str = ""
    """Why a component that was recorded cannot be built here; empty of every other one."""


class OfPortParams(OfParams):
    """Attributes of the ``Params`` of a port; the first two have no default."""

    transport_samples: int
    """Samples after which a Command acts."""
    longest_wait: float
    """Time without a Command after which the port gives up, s."""
    builds_axes: bool = False
    """Behind it stand models: every axis needs an actuator and a specimen there, or the test a rig."""
    carries_force: bool = False
    """It takes Commands in newtons, for force loops that the controller closes."""
    can_be_switched: bool = False
    """Its pressure and interlock can be switched on purpose, as a fault."""
    one_node: bool = False
    """No axis of it can have a node of its own."""
    watchdog: float | None = None
    """Time without a command after which the port itself holds the rig, s."""
    emulator: bool = False
    """The far end is a program that emulates a rig."""
    stand_in: bool = False
    """The far end says of itself that nothing moves behind it."""
    has_heartbeat: bool | None = None
    """The far end stops by itself without signs of life; None: where the port has its own ``drop_heartbeat``."""


class OfIntegratorParams(OfParams):
    """Attributes of the ``Params`` of an integrator."""

    observes: bool = False
    """Without a structure it tells more than the displacements that the axes take."""
    who: str = ""
    """Who has the excitation in place of the scenario, in words."""
    experimental_stiffness: Any = None
    """Stiffness of the specimen that one elsewhere counts on, ``(n_dof, n_dof)`` N/m."""
    equivalent_damping: object = None
    """Damping of the specimen that it counts on, N s/m."""
    displacement: Any = None
    """Prescribed displacement as a function of time."""
    ground: object = None
    """Input of the one outside that takes the ground motion of the scenario."""


class OfStructureParams(OfParams):
    """Attributes of the ``Params`` of a structure."""

    gravity_loads: tuple[float, ...] | None = None
    """Loads whose P-Delta it computes, N."""
    experimental_gravity_loads: tuple[float, ...] | None = None
    """Part of them that the rig applies, N; None where that is not said."""

    def laws(self) -> Mapping[str, OfParams]:
        """Return the restoring forces that it names, with their stiffness, by the names that copies go by."""
        return {}


class OfGroundMotionParams(OfParams):
    """Attributes of the ``Params`` of a ground motion."""

    proportional_to: str = ""
    """Name of the parameter to which all its values are proportional."""


class OfCompensatorParams(OfParams):
    """Attributes of the ``Params`` of a compensator: models that stand in the scenario, not in a file."""

    lead: float
    """Time by which the target is read ahead, s; where it has this parameter."""
    known: Any = None
    """Matrices of the rig."""
    inverse: Any = None
    """Gains of an identified inverse."""


class OfSemiActiveParams(OfParams):
    """Attributes of the ``Params`` of a semi-active controller."""

    voltage: float = 0.0
    """Largest voltage that it gives, V."""


class OfRigParams(OfParams):
    """Attributes of the ``Params`` of a rig of coupled axes."""

    to_scale: bool = False
    """All its numbers pass the setup, so that its specimen may be a model to scale."""


class OfForceControllerParams(OfParams):
    """Attributes of the ``Params`` of a force controller."""

    stiffness: float | None = None
    """Stiffness against which it pushes, N/m; None where it has none."""
    column: object = None
    """Lengths of a column (``mechanics/axial_load.py``) whose head a displacement axis moves; None for none."""
    coupled_to: int = 1
    """Number of that axis, from 1."""


_COMPONENTS = {"compensator": OfCompensator}
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


class _RecordedPort(OfPortParams):
    """A port of a recording, which may have declared nothing of the way to its rig."""

    transport_samples = 0
    longest_wait = math.inf
    has_heartbeat = False


class _RecordedIntegrator(OfIntegratorParams):
    """An integrator of a recording: what it told is recorded, whatever it was."""

    observes: bool = True


_RECORDED: dict[str, type[OfParams]] = {"port": _RecordedPort, "integrator": _RecordedIntegrator}


def of_params(family: str) -> type[OfParams]:
    return _PARAMS.get(family, OfParams)


def of_recorded(family: str) -> type[OfParams]:
    """Return the class with what holds for recorded parameters of a ``family`` that cannot be built here."""
    return _RECORDED.get(family, of_params(family))


def complete(family: str, component: Any) -> None:
    """Give a ``component`` class of ``family``, and its ``Params``, the attributes that they leave out."""
    checks.complete(component, _COMPONENTS.get(family, OfComponent))
    checks.complete(component.Params, of_params(family))


def drops_heartbeat(port: object) -> bool:
    """True for the class of a port with a ``drop_heartbeat`` of its own."""
    return hasattr(port, "drop_heartbeat") and port.drop_heartbeat is not OfPort.drop_heartbeat
