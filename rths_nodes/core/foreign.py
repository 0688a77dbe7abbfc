# SPDX-License-Identifier: Apache-2.0
"""Components of other packages: checks, defaults and errors in their name.

Their exceptions become errors with family, type and operation: :class:`ConfigError` while they are built,
:class:`ComponentError` in a test. Missing members are refused, or filled with the defaults of the family's base
class; a compensator is asked for one command at rest, on a copy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import numpy as np

from rths_nodes.core import protocols
from rths_nodes.core.errors import ComponentError, ConfigError, IntegratorError, PortError, show
from rths_nodes.core.parameters import type_of
from rths_nodes.core.protocols import Compensator
from rths_nodes.core.samples import Motion

PROTOCOLS: dict[str, type] = {
    "ground_motion": protocols.GroundMotion,
    "structure": protocols.Structure,
    "integrator": protocols.Integrator,
    "ramp": protocols.Ramp,
    "setup": protocols.Setup,
    "semi_active": protocols.SemiActive,
    "compensator": protocols.Compensator,
    "actuator": protocols.Actuator,
    "specimen": protocols.Specimen,
    "rig": protocols.Rig,
    "force_controller": protocols.ForceController,
    "quantity": protocols.Quantity,
}
"""Members of each family; ports: ``laboratory/ports/named.py``."""
NEEDED = {
    protocols.Specimen: ("force", "initial_state", "rate"),
    protocols.Actuator: ("displacement", "force", "reset", "step", "velocity"),
    protocols.Rig: ("displacement", "force", "reset", "step", "velocity"),
}
"""Base class whose methods call a kernel -> members that a class without one needs."""
_MOTION = ("displacement", "velocity", "acceleration", "exact_acceleration", "restoring_force")
SHOWN = {
    "integrator": _MOTION,
    "rig": ("displacement", "velocity", "force"),
    "actuator": ("displacement", "force"),
}
"""Results of each family at the start, and after each ``step``: arrays, for actuators numbers."""
IN_WORDS = (ComponentError, ConfigError, IntegratorError, PortError)
"""Errors that name the failed part."""


def build(family: str, cls: type, params: object, arguments: tuple[Any, ...]) -> Any:
    """Build the component ``cls`` of another package. Raises ConfigError in its name."""
    label = f"{family}.type = {type_of(params)!r}"
    protocol = PROTOCOLS.get(family)
    made = _guarded(cls, family, label) if protocol is not None and isinstance(cls, type) else cls

    def one() -> Any:
        try:
            return made(params, *arguments)
        except IN_WORDS:
            raise
        except Exception as error:
            raise ConfigError(f"{label}: cannot be built: {type(error).__name__}: {error}") from error

    built = one()
    outside = bool(getattr(built, "external", False))  # it has no results before it is opened
    if protocol is not None:
        wanted = _methods(protocol) if outside else _wanted(protocol)
        if missing := [name for name in wanted if not hasattr(built, name)]:
            raise ConfigError(f"{label}: {cls.__name__} lacks {', '.join(missing)} of the family {family}")
        if not outside:
            _check_shown(built, family, label)
            if family == "compensator":
                _probe(one(), label, int(arguments[1]))
    return built


def _methods(protocol: type) -> list[str]:
    return [name for name in _wanted(protocol) if callable(getattr(protocol, name, None))]


def _wanted(protocol: type) -> list[str]:
    given = _defaults(protocol)
    return [name for name in _members(protocol) if name not in given]


def _defaults(protocol: Any) -> dict[str, object]:
    """Return the defaults of a family's base class for a class that does not inherit; a protocol has none."""
    needed = NEEDED.get(protocol) or protocol.__abstractmethods__
    known = {name: value for base in reversed(_own(protocol)) for name, value in vars(base).items()}
    given = {name: value for name, value in known.items() if not name.startswith("_") and name not in needed}
    return given if needed else {}


def _own(protocol: type) -> list[type]:
    return [base for base in protocol.__mro__ if base.__module__ == protocol.__module__]


def _members(protocol: type) -> list[str]:
    names = {name for base in _own(protocol) for name in (*vars(base), *inspect.get_annotations(base))}
    return sorted(name for name in names if not name.startswith("_"))


def _probe(compensator: Compensator, label: str, n_axes: int) -> None:
    try:
        rest = np.zeros(n_axes)
        compensator.step(Motion(rest, rest.copy(), rest.copy()), rest.copy())
        told, names = len(compensator.state()), compensator.state_names
    except ComponentError as error:
        raise ConfigError(str(error)) from error
    except (TypeError, AttributeError) as error:
        raise ConfigError(f"{label}: state and state_names: {error}") from error
    if told != len(names):
        raise ConfigError(f"{label}: state() gives {told} numbers; state_names has {len(names)}")


@cache
def _guarded(cls: type, family: str, label: str) -> type:
    members = {name: inspect.getattr_static(cls, name, None) for name in _members(PROTOCOLS[family])}
    names = [name for name, member in members.items() if callable(member) and name != "Params"]
    methods = {name: _guard(getattr(cls, name), f"{label}: {name}") for name in names}
    given = {name: value for name, value in _defaults(PROTOCOLS[family]).items() if not hasattr(cls, name)}
    if family == "compensator" and "step" in methods:
        methods["step"] = _command(methods["step"], f"{label}: step")
    elif family in SHOWN and "step" in methods:
        methods["step"] = _showing(methods["step"], family, label)
    return type(cls.__name__, (cls,), given | methods | {"__module__": cls.__module__, "__doc__": cls.__doc__})


def _guard(method: Callable[..., object], label: str) -> Callable[..., object]:
    @wraps(method)
    def guarded(self: object, *arguments: object, **named: object) -> object:
        try:
            return method(self, *arguments, **named)
        except IN_WORDS:
            raise
        except Exception as error:
            raise ComponentError(f"{label}: {type(error).__name__}: {error}") from error

    return guarded


def _check_shown(built: object, family: str, label: str) -> None:
    for name in SHOWN.get(family, ()):
        if not _is_fit(value := getattr(built, name), family):
            wanted = "a number" if family == "actuator" else "an array of floats with one number for each"
            raise ConfigError(f"{label}: {name} is {show(value)}: must be {wanted}")


def _is_fit(value: object, family: str) -> bool:
    if family == "actuator":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "f"


def _showing(step: Callable[..., object], family: str, label: str) -> Callable[..., object]:
    @wraps(step)
    def stepped(self: object, *arguments: object) -> object:
        sizes = [np.shape(getattr(self, name)) for name in SHOWN[family]]
        given = step(self, *arguments)
        for name, size in zip(SHOWN[family], sizes, strict=True):
            value = getattr(self, name)
            if not _is_fit(value, family) or np.shape(value) != size:
                raise ComponentError(f"{label}: step: {name} became {show(value)}: must keep its shape {size}")
        return given

    return stepped


def _command(step: Callable[..., object], label: str) -> Callable[..., Any]:
    @wraps(step)
    def checked(self: object, target: Motion, measured: object) -> object:
        command, shape = step(self, target, measured), target.displacement.shape
        if not isinstance(command, np.ndarray) or command.shape != shape or command.dtype.kind != "f":
            what = (
                f"an array {command.shape} of {command.dtype}"
                if isinstance(command, np.ndarray)
                else show(command)
            )
            raise ComponentError(f"{label}: gives {what}: must be an array {shape} of floats, the commands in m")
        return command

    return checked
