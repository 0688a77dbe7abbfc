# SPDX-License-Identifier: Apache-2.0
"""Components of other packages: checks, defaults and labelled errors.

An exception of a component, or a non-finite result of finite arguments, becomes an error with family, type, file
and line: :class:`ConfigError` during construction, :class:`ComponentError` in a test. A component that lacks a
required member is refused; other missing members get the defaults of the family's base class. Before the test,
trial commands of a second instance check that a compensator leaves its inputs unchanged and that ``reset``
restores its initial state.
``codegen`` translates the functions without their guards.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from functools import cache, wraps
from operator import itemgetter
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.core import protocols
from rths_nodes.core.arithmetic import is_finite
from rths_nodes.core.checks import ChecksScenario
from rths_nodes.core.errors import (
    FOREIGN,
    ComponentError,
    ConfigError,
    IntegratorError,
    PortError,
    located,
    package_of,
    raised_at,
    show,
)
from rths_nodes.core.kernels import Function, Kernel, unguarded
from rths_nodes.core.parameters import type_of
from rths_nodes.core.protocols import Compensator
from rths_nodes.core.samples import Motion

PROTOCOLS: dict[str, type] = {
    "ground_motion": protocols.GroundMotion,
    "structure": protocols.Structure,
    "restoring_force": protocols.RestoringForce,
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
"""Family -> class that declares the members of the family; for ports see ``laboratory/ports/wrappers.py``."""
NEEDED = {
    protocols.Specimen: ("force", "initial_state", "rate"),
    protocols.Actuator: ("displacement", "force", "reset", "step", "velocity"),
    protocols.Rig: ("displacement", "force", "reset", "step", "velocity"),
}
"""Base class whose methods call a kernel -> members that a class without a kernel must define."""
_MOTION = ("displacement", "velocity", "acceleration", "exact_acceleration", "restoring_force")
SHOWN = {
    "integrator": _MOTION,
    "rig": ("displacement", "velocity", "force"),
    "actuator": ("displacement", "force"),
}
"""Attributes with the results of a ``step``, by family: numbers for actuators, arrays for other families."""
PROBED = 1e-3
IN_WORDS = (ComponentError, ConfigError, IntegratorError, PortError)


GUARD = "guard"


def _unchanged(result: Any) -> object:
    return result


BEFORE = ("ground_motion", "structure")
Output = Callable[[Any], object]
AFTER_STATE: Output = itemgetter(1)
RESULTS = {
    "ground_motion": ("sample",),
    "specimen": ("force", "rate"),
    "restoring_force": ("force",),
    "force_controller": ("step",),
    "semi_active": ("step",),
}
"""Methods whose results must be finite if their arguments are finite. The stages check ramp, setup and
compensator."""
OF_KERNEL: dict[str, dict[str, Output]] = {
    "actuator": {"step": AFTER_STATE},
    "rig": {"step": AFTER_STATE},
    "specimen": {"force": _unchanged, "rate": _unchanged},
    "restoring_force": {"step": AFTER_STATE},
    "setup": {},
}
"""Family -> functions of a guarded kernel -> part of the result that must be finite for finite arguments."""


def build(family: str, cls: type, params: object, arguments: tuple[Any, ...]) -> Any:
    label = f"{family}.type = {type_of(params)!r}"
    protocol = PROTOCOLS.get(family)
    made = guarded(family, cls, type_of(params))

    def one() -> Any:
        try:
            return made(params, *arguments)
        except IN_WORDS:
            raise
        except FOREIGN as error:
            raise ConfigError(
                f"{label}: the component cannot be built: "
                f"{raised_at(error, cls.__module__)}{type(error).__name__}: {error}"
            ) from error

    built = one()
    outside = bool(getattr(built, "external", False))  # an external component has no results before it is opened
    if protocol is not None:
        wanted = sorted(_members(protocol) - _defaults(protocol).keys())
        # a property of an external component may use the rig, which is not open yet
        wanted = [name for name in wanted if not outside or callable(getattr(protocol, name, None))]
        if names := ", ".join(name for name in wanted if not hasattr(built, name)):
            raise ConfigError(
                f"{label}: {located(cls)} lacks {names}. Add these members, which the family {family} requires"
            )
        if not outside:
            for name in SHOWN.get(family, ()):
                if not _is_fit(value := getattr(built, name), family):
                    wanted_kind = "a number" if family == "actuator" else "an array (n,) of floats"
                    raise ConfigError(f"{label}: {name} is {show(value)}: must be {wanted_kind}")
            if family == "compensator":
                _probe(one(), label, int(arguments[1]))
    return built


def guard_params(family: str, name: str, cls: type) -> None:
    """Report exceptions in methods of ``cls.Params`` as errors of the component."""
    params = vars(cls)["Params"]
    for method in _members(ChecksScenario):
        function = unguarded(inspect.getattr_static(params, method))
        if inspect.isfunction(function) and package_of(function.__module__) != package_of(__name__):
            label = f"type = {name!r}" if method == "fits" else f"{family}.type = {name!r}"  # callers add a path
            failure = ComponentError if method == "remarks" else ConfigError  # remarks follow the test
            setattr(params, method, Guard(label, cls.__module__, failure).around(function))


def _defaults(protocol: Any) -> dict[str, object]:
    needed = NEEDED.get(protocol) or protocol.__abstractmethods__
    members = _members(protocol) - set(needed) if needed else ()
    attributes = {name: value for base in reversed(_bases(protocol)) for name, value in vars(base).items()}
    return {name: value for name, value in attributes.items() if name in members}


def _bases(protocol: type) -> list[type]:
    return [base for base in protocol.__mro__ if base.__module__ == protocol.__module__]


def _members(protocol: type) -> set[str]:
    names = {name for base in _bases(protocol) for name in (*vars(base), *inspect.get_annotations(base))}
    return {name for name in names if not name.startswith("_")}


def _probe(compensator: Compensator, label: str, n_axes: int) -> None:
    rest, moved = np.zeros(n_axes), np.full(n_axes, PROBED)
    try:
        compensator.step(Motion(rest, rest.copy(), rest.copy()), rest.copy())
        compensator.state()
        commands = []
        for _ in range(2):
            compensator.reset()
            motion, measured = Motion(moved.copy(), rest.copy(), rest.copy()), rest.copy()
            commands.append(compensator.step(motion, measured).copy())
            arguments = {"target.displacement": (motion.displacement, moved), "measured": (measured, rest)}
            for name, (value, before) in arguments.items():
                if not np.array_equal(value, before):
                    raise ConfigError(
                        f"{label}: {located(compensator.step, 'step')} changes its input {name}. Work on a copy, "
                        f"{name}.copy()"
                    )
    except ComponentError as error:
        raise ConfigError(str(error)) from error
    first, again = commands
    if not np.array_equal(first, again, equal_nan=True):
        raise ConfigError(
            f"{label}: reset() does not restore the initial state: with equal inputs, the command is "
            f"{show(again.tolist())} m after reset() and {show(first.tolist())} m before"
        )


@cache
def guarded(family: str, cls: type, name: str) -> Any:
    if family not in PROTOCOLS or not isinstance(cls, type):
        return cls
    label, results = f"{family}.type = {name!r}", RESULTS.get(family, ())
    kernel = inspect.getattr_static(cls, "KERNEL", None)
    source = kernel.step if isinstance(kernel, Kernel) else None
    guard = Guard(label, cls.__module__, ConfigError if family in BEFORE else ComponentError, source)
    members = sorted(_members(PROTOCOLS[family]) - {"Params"})
    names = [name for name in members if callable(inspect.getattr_static(cls, name, None))]
    methods = {name: guard.around(getattr(cls, name), _unchanged if name in results else None) for name in names}
    defaults = {name: value for name, value in _defaults(PROTOCOLS[family]).items() if not hasattr(cls, name)}
    if family == "compensator" and {"step", "state"} <= methods.keys():
        methods["step"] = _command(methods["step"], label, source or methods["step"])
        methods["state"] = _state(methods["state"], label)
    elif family in SHOWN and "step" in methods:
        methods["step"] = _showing(methods["step"], family, label)
    if family in OF_KERNEL and hasattr(cls, "kernel_of"):
        methods["kernel_of"] = classmethod(guard.kernel_of(cls, family))
    return type(cls.__name__, (cls,), defaults | methods | {"__module__": cls.__module__, "__doc__": cls.__doc__})


class Guard(NamedTuple):
    """Reports errors in functions of a component as ``failure``, with its ``label``.

    ``module`` is the module of the component's class. ``source`` is the ``step`` of the class attribute
    ``KERNEL``; None unless ``KERNEL`` is a :class:`Kernel`.
    """

    label: str
    module: str
    failure: type[Exception]
    source: Function | None = None

    def around(self, function: Callable[..., object], output: Output | None = None, first: int = 1) -> Any:
        """Return ``function`` wrapped so that its errors name the component.

        ``output(result)`` must be finite if all arguments from position ``first`` on are finite.
        """

        @wraps(function)
        def guarded_function(*arguments: object, **named: object) -> object:
            try:
                result = function(*arguments, **named)
            except IN_WORDS:
                raise
            except FOREIGN as error:
                where = raised_at(error, self.module) or f"{located(self.source or function)}: "
                raise self.failure(f"{self.label}: {where}{type(error).__name__}: {error}") from error
            if output is not None and not is_finite(output(result)) and is_finite(arguments[first:]):
                shown = show(output(result))
                raise self.failure(f"{self.label}: {located(function)} returns {shown}: must be finite")
            return result

        vars(guarded_function)[GUARD] = self
        return guarded_function

    def kernel_of(self, cls: Any, family: str) -> Callable[..., object]:
        def kernel_of(_: type, *arguments: object) -> object:
            kernel, outputs = cls.kernel_of(*arguments), OF_KERNEL[family]
            functions = kernel._asdict().items() if kernel is not None else ()
            guards = {
                name: self.around(function, outputs.get(name), 2)
                for name, function in functions
                if isinstance(function, FunctionType)
            }
            return kernel._replace(**guards) if guards else kernel

        return kernel_of


def labelled(text: str, functions: Iterable[Callable[..., object]]) -> str:
    """Prefix ``text``, which begins with file and line, with the label of the component defined in this file.

    Return ``text`` unchanged if no guard of ``functions`` belongs to the file.
    """
    guards = {vars(function)[GUARD] for function in functions if GUARD in vars(function)}
    modules = {guard.label: vars(sys.modules[guard.module]) for guard in guards if guard.module in sys.modules}
    labels = [label for label, names in modules.items() if text.startswith(f"{names.get('__file__')}:")]
    return ": ".join([*labels[:1], text])


def _is_fit(value: object, family: str) -> bool:
    if family == "actuator":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "f"


def _showing(step: Callable[..., object], family: str, label: str) -> Callable[..., object]:
    @wraps(step)
    def stepped(self: object, *arguments: object) -> object:
        sizes = [np.shape(getattr(self, name)) for name in SHOWN[family]]
        result = step(self, *arguments)
        for name, size in zip(SHOWN[family], sizes, strict=True):
            value = getattr(self, name)
            if not _is_fit(value, family) or np.shape(value) != size:
                raise ComponentError(f"{label}: step: {name} became {show(value)}, but must keep its shape {size}")
            if not is_finite(value) and is_finite(arguments):
                raise ComponentError(f"{label}: {located(step)}: {name} became {show(value)}, but must be finite")
        return result

    return stepped


def _state(state: Function, label: str) -> Function:
    @wraps(state)
    def checked(self: Compensator) -> object:
        values = state(self)
        try:
            count, names = len(values), len(self.state_names)
        except (TypeError, AttributeError) as error:
            raise ComponentError(f"{label}: state() and state_names must be sequences ({error})") from error
        if count != names:
            raise ComponentError(f"{label}: state() returns {count} numbers, but state_names has {names} names")
        return values

    return checked


def _command(step: Callable[..., object], label: str, source: Function) -> Callable[..., Any]:
    name = "step" if source is step else ""

    @wraps(step)
    def checked(self: object, target: Motion, measured: object) -> object:
        command, shape = step(self, target, measured), target.displacement.shape
        if not isinstance(command, np.ndarray) or command.shape != shape or command.dtype.kind != "f":
            problem = (
                f"an array {command.shape} of {command.dtype}"
                if isinstance(command, np.ndarray)
                else show(command)
            )
            raise ComponentError(
                f"{label}: {located(source, name)} returns {problem}: must be an array {shape} of floats "
                "(commands in m)"
            )
        if not is_finite(command) and is_finite((target.displacement, target.velocity, measured)):
            raise ComponentError(
                f"{label}: {located(source, name)}: command = {show(command.tolist())} m: must be finite"
            )
        return command

    return checked
