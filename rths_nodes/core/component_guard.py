# SPDX-License-Identifier: Apache-2.0
"""Components of other packages: checks, defaults and labelled errors.

Exceptions of a component, and non-finite results of finite arguments, become errors that name family, type, file
and line. The error is a :class:`ConfigError` during construction, and a :class:`ComponentError` in a test. A
component that lacks a required member is refused; other missing members get the defaults of the family's base
class. Before the test, trial commands of a second instance check that a compensator leaves its inputs unchanged
and that ``reset`` restores its initial state. ``codegen`` translates the functions without their guards.
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
from rths_nodes.core.kernels import GUARD, Function, Kernel, unguarded
from rths_nodes.core.parameters import ChecksScenario, type_of
from rths_nodes.core.protocols import Compensator
from rths_nodes.core.samples import Motion

IN_WORDS = (ComponentError, ConfigError, IntegratorError, PortError)
PROBED = 1e-3

Output = Callable[[Any], object]
Check = Callable[[tuple[Any, ...], Any], str]
"""Function ``check(arguments, result)`` that describes the fault of a result; empty if the result is valid."""
AFTER_STATE: Output = itemgetter(1)


class Family(NamedTuple):
    """Members of a family of components, declared by ``protocol``, and the checks of their results.

    The methods ``finite`` and the kernel functions ``kernel`` must return finite results for finite arguments.
    Stages of the loop check the results of ramps, setups and compensators. If ``kernel`` is None, kernels
    are not guarded. ``shown`` names the attributes that hold the results of ``step``: numbers for actuators, else
    arrays. ``needed`` names the members that a class without a kernel must define (default: abstract members).
    """

    protocol: Any
    finite: tuple[str, ...] = ()
    kernel: tuple[str, ...] | None = None
    shown: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    failure: type[Exception] = ComponentError

    def members(self) -> set[str]:
        return _members(self.protocol)

    def defaults(self) -> dict[str, object]:
        needed = self.needed or self.protocol.__abstractmethods__
        members = self.members() - set(needed) if needed else ()
        bases = reversed(_bases(self.protocol))
        return {name: value for base in bases for name, value in vars(base).items() if name in members}


_STEPPED = ("displacement", "force", "reset", "step", "velocity")
_MOTION = ("displacement", "velocity", "acceleration", "exact_acceleration", "restoring_force")
FAMILIES = {
    "ground_motion": Family(protocols.GroundMotion, ("sample",), failure=ConfigError),
    "structure": Family(protocols.Structure, failure=ConfigError),
    "restoring_force": Family(protocols.RestoringForce, ("force",), ("step",)),
    "integrator": Family(protocols.Integrator, shown=_MOTION),
    "ramp": Family(protocols.Ramp),
    "setup": Family(protocols.Setup, kernel=()),
    "semi_active": Family(protocols.SemiActive, ("step",)),
    "compensator": Family(protocols.Compensator),
    "actuator": Family(protocols.Actuator, (), ("step",), ("displacement", "force"), _STEPPED),
    "specimen": Family(
        protocols.Specimen, ("force", "rate"), ("force", "rate"), needed=("force", "initial_state", "rate")
    ),
    "rig": Family(protocols.Rig, (), ("step",), ("displacement", "velocity", "force"), _STEPPED),
    "force_controller": Family(protocols.ForceController, ("step",)),
    "quantity": Family(protocols.Quantity),
}
"""Guarded families. Ports are guarded by ``laboratory/ports/wrappers.py``."""


def build(family: str, cls: type, params: object, arguments: tuple[Any, ...]) -> Any:
    label = f"{family}.type = {type_of(params)!r}"
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
    if (declared := FAMILIES.get(family)) is None:
        return built
    # a property of an external component may use the rig, which is not open yet
    wanted = sorted(declared.members() - declared.defaults().keys())
    wanted = [name for name in wanted if not outside or callable(getattr(declared.protocol, name, None))]
    if lacking := ", ".join(name for name in wanted if not hasattr(built, name)):
        raise ConfigError(
            f"{label}: {located(cls)} lacks {lacking}. Add these members, which the family {family} requires"
        )
    if outside:
        return built
    for name in declared.shown:
        if not _is_fit(value := getattr(built, name), family):
            kind = "a number" if family == "actuator" else "an array (n,) of floats"
            raise ConfigError(f"{label}: {name} is {show(value)}: must be {kind}")
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
            failure = ComponentError if method == "remarks" else ConfigError  # remarks are made after the test
            setattr(params, method, Guard(label, cls.__module__, failure).around(function))


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
    declared = FAMILIES.get(family)
    if declared is None or not isinstance(cls, type):
        return cls
    label = f"{family}.type = {name!r}"
    kernel = inspect.getattr_static(cls, "KERNEL", None)
    source = kernel.step if isinstance(kernel, Kernel) else None
    guard = Guard(label, cls.__module__, declared.failure, source)
    methods = {}
    for member in sorted(declared.members() - {"Params"}):
        if callable(inspect.getattr_static(cls, member, None)):
            method = getattr(cls, member)
            check = _finite(method, _unchanged, 1) if member in declared.finite else None
            if family == "compensator" and member in ("step", "state"):
                check = _state if member == "state" else _command(source, method)
            methods[member] = guard.around(method, check)
    defaults = {member: value for member, value in declared.defaults().items() if not hasattr(cls, member)}
    if declared.shown and "step" in methods:
        methods["step"] = _showing(methods["step"], family, label)
    if declared.kernel is not None and hasattr(cls, "kernel_of"):
        methods["kernel_of"] = classmethod(guard.kernel_of(cls, declared.kernel))
    return type(cls.__name__, (cls,), defaults | methods | {"__module__": cls.__module__, "__doc__": cls.__doc__})


class Guard(NamedTuple):
    """Reports errors in functions of a component as exceptions of the class ``failure`` that begin with ``label``.

    ``module`` is the module of the component's class. ``source`` is the function ``step`` of the class attribute
    ``KERNEL``, or None if ``KERNEL`` is not a :class:`Kernel`.
    """

    label: str
    module: str
    failure: type[Exception]
    source: Function | None = None

    def around(self, function: Callable[..., object], check: Check | None = None) -> Any:
        """Wrap ``function`` so that its errors, and the problems that ``check`` finds, name the component."""

        @wraps(function)
        def guarded_function(*arguments: object, **named: object) -> object:
            try:
                result = function(*arguments, **named)
            except IN_WORDS:
                raise
            except FOREIGN as error:
                where = raised_at(error, self.module) or f"{located(self.source or function)}: "
                raise self.failure(f"{self.label}: {where}{type(error).__name__}: {error}") from error
            if check is not None and (problem := check((*arguments, *named.values()), result)):
                raise self.failure(f"{self.label}: {problem}")
            return result

        vars(guarded_function)[GUARD] = self
        return guarded_function

    def kernel_of(self, cls: Any, finite: tuple[str, ...]) -> Callable[..., object]:
        def kernel_of(_: type, *arguments: object) -> object:
            kernel, guards = cls.kernel_of(*arguments), {}
            for name, function in kernel._asdict().items() if kernel is not None else ():
                output = AFTER_STATE if name == "step" else _unchanged
                if isinstance(function, FunctionType):
                    guards[name] = self.around(function, _finite(function, output, 2) if name in finite else None)
            return kernel._replace(**guards) if guards else kernel

        return kernel_of


def _unchanged(result: Any) -> object:
    return result


def _finite(function: Callable[..., object], output: Output, first: int) -> Check:
    def check(arguments: tuple[Any, ...], result: Any) -> str:
        if is_finite(output(result)) or not is_finite(arguments[first:]):
            return ""
        return f"{located(function)} returns {show(output(result))}: must be finite"

    return check


def _state(arguments: tuple[Any, ...], values: Any) -> str:
    try:
        count, names = len(values), len(arguments[0].state_names)
    except (TypeError, AttributeError) as error:
        return f"state() and state_names must be sequences ({error})"
    return "" if count == names else f"state() returns {count} numbers, but state_names has {names} names"


def _command(source: Function | None, step: Function) -> Check:
    def check(arguments: tuple[Any, ...], command: Any) -> str:
        _, target, measured = arguments
        is_array, shape = isinstance(command, np.ndarray), target.displacement.shape
        where = located(source) if source else located(step, "step")
        if not is_array or command.shape != shape or command.dtype.kind != "f":
            problem = f"an array {command.shape} of {command.dtype}" if is_array else show(command)
            return f"{where} returns {problem}: must be an array {shape} of floats (commands in m)"
        if not is_finite(command) and is_finite((target.displacement, target.velocity, measured)):
            return f"{where}: command = {show(command.tolist())} m: must be finite"
        return ""

    return check


def labelled(text: str, functions: Iterable[Callable[..., object]]) -> str:
    """Prepend the label of a component to ``text``, which begins with the path of the component's file.

    Return ``text`` unchanged if ``functions`` contains no guarded function of a component in this file.
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
    names = FAMILIES[family].shown

    @wraps(step)
    def stepped(self: object, *arguments: object) -> object:
        sizes = [np.shape(getattr(self, name)) for name in names]
        result = step(self, *arguments)
        for name, size in zip(names, sizes, strict=True):
            value = getattr(self, name)
            if not _is_fit(value, family) or np.shape(value) != size:
                raise ComponentError(f"{label}: step: {name} became {show(value)}, but must keep its shape {size}")
            if not is_finite(value) and is_finite(arguments):
                raise ComponentError(f"{label}: {located(step)}: {name} became {show(value)}, but must be finite")
        return result

    return stepped
