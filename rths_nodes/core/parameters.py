# SPDX-License-Identifier: Apache-2.0
"""Declarations of parameters with unit, bounds and description, next to the algorithm that uses them.

A component's ``Params`` is a frozen attrs class whose fields come from the functions of this module. The
declarations define the strict YAML check (``validation.from_data``), ROS parameters with their ranges, ``rths
params`` and the generated parameter pages.

A ``Params`` class checks its own fields in ``validate``. Checks against the rest of the scenario belong to the
other methods of :class:`ChecksScenario`, which receive a :class:`TestContext` and never the scenario itself. For
each family, a class defines the defaults of optional attributes. The registry adds them to the components.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from keyword import iskeyword
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar, dataclass_transform

import attrs

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array

AnyParams: TypeAlias = Any
"""``Params`` of any component. Subclasses annotate their own class."""


class OfComponent:
    external: ClassVar[bool] = False
    """True if the component cannot be copied because of a socket, a process or a rig."""
    transport_in_lead: ClassVar[bool] = False
    SOURCES: ClassVar[tuple[str, ...]] = ()
    """Keys of the component's publications in ``config/references.bib``."""


T = TypeVar("T")
Field: TypeAlias = Any
"""Field of a class, typed by its annotation, as in ``attrs.field``."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
def params(cls: type[T]) -> type[T]:
    """Make a ``Params`` class frozen and keyword-only, and add the missing methods of :class:`ChecksScenario`.

    Raises TypeError for a field that no function of this module declares.

    >>> from rths_nodes.core import flag, integer, number, params, text, vector
    >>> @params
    ... class Params:
    ...     delay: float = number("delay of the rig", "s", at_least=0.0)
    ...     order: int = integer("order of the polynomial", default=2, at_least=1, at_most=3)
    ...     gains: tuple[float, ...] = vector("gains", "1", default=(1.0,))
    ...     kind: str = text("kind of the fit", "even", ("even", "odd"))
    ...     rests: bool = flag("true: nothing is learned", False)
    >>> Params(delay=0.02)
    Params(delay=0.02, order=2, gains=(1.0,), kind='even', rests=False)
    """
    made: Any = attrs.frozen(kw_only=True, slots=True)(cls)
    bare = ", ".join(field.name for field in attrs.fields(made) if _KEY not in field.metadata)
    if bare:
        raise TypeError(f"{cls.__qualname__}: declare {bare} with number(), text() or a similar function")
    _add_members(made, ChecksScenario)
    checked: type[T] = made
    return checked


def fields_from(fields: Mapping[str, Field]) -> Callable[[type[T]], type[T]]:
    """Return a class decorator, applied before :func:`params`, that inserts ``fields`` before existing fields."""

    def extended(cls: type[T]) -> type[T]:
        for name, declaration in fields.items():
            setattr(cls, name, declaration)
        return cls

    return extended


_KEY = "rths"


@attrs.frozen
class Spec:
    kind: str
    doc: str
    default: Any
    """Default value, data of the default, or an ``attrs.Factory``; NOTHING if the parameter is required."""
    unit: str = ""
    at_least: float | None = None
    more_than: float | None = None
    at_most: float | None = None
    less_than: float | None = None
    choices: tuple[str, ...] = ()
    family: str = ""
    cls: type | None = None
    large: bool = False
    """True for a matrix whose numbers may remain in a file."""
    after: str = ""
    opens: str = ""
    """Name of the field that lists the files opened by a Python program."""
    runs: bool = False
    columns: bool = False
    """True for a file of columns. In data a mapping of columns may replace the file."""
    places: Mapping[str, str] = attrs.field(factory=dict)
    """Name of this option in each interface; empty if the parameter is not an option of a run."""

    @property
    def required(self) -> bool:
        return self.default is attrs.NOTHING

    @property
    def left_out(self) -> object:
        """Value of an omitted parameter, as data or as a built object; None if the parameter has no default."""
        if isinstance(self.default, attrs.Factory):  # type: ignore[arg-type]
            return self.default.factory()
        return None if self.required else self.default

    @property
    def bounds(self) -> dict[str, float]:
        pairs = {">=": self.at_least, ">": self.more_than, "<=": self.at_most, "<": self.less_than}
        return {sign: value for sign, value in pairs.items() if value is not None}

    @property
    def bound(self) -> str:
        """Bounds as text, e.g. ``> 0 and <= 1``; empty if there are none."""
        bounds = [f"{sign} {value:g}" for sign, value in self.bounds.items()]
        if self.choices:
            bounds.append("one of " + ", ".join(self.choices))
        return " and ".join(bounds)


def _field(kind: str, doc: str, default: object, unit: str = "", **further: Any) -> object:
    stands = None if isinstance(default, Mapping) else default
    return attrs.field(default=stands, metadata={_KEY: Spec(kind, doc, default, unit, **further)})


def number(doc: str, unit: str = "", default: object = attrs.NOTHING, **bounds: object) -> Field:
    """Declare a finite float; optional if ``default=None``. Integers are converted. Other types are refused."""
    return _field("number", doc, default, unit, **bounds)


def integer(doc: str, unit: str = "", default: object = attrs.NOTHING, **bounds: object) -> Field:
    """Declare an integer. Fractions are refused."""
    return _field("integer", doc, default, unit, **bounds)


def text(doc: str, default: object = attrs.NOTHING, choices: Iterable[str] = (), **further: Any) -> Field:
    """Declare a string, optionally one of ``choices``."""
    return _field("text", doc, default, choices=tuple(choices), **further)


def path(
    doc: str, default: object = attrs.NOTHING, opens: str = "", runs: bool = False, columns: bool = False
) -> Field:
    """Declare a file. Its path is relative to the scenario file, or to the working directory if there is none.

    With ``runs``, the file is a program with all rights of the user. ``opens`` names the field that lists the
    files opened by a Python program, relative to the program. These files, and imported modules below the
    program's folder, belong to the program. With ``columns``, a mapping of columns may replace the path in data.
    Recordings contain a copy of the file.
    """
    return _field("path", doc, default, opens=opens, runs=runs or bool(opens), columns=columns)


def texts(doc: str, choices: Iterable[str] = (), **further: Any) -> Field:
    """Declare a list of strings, stored as a tuple, empty by default. ``choices`` restricts each string."""
    return _field("texts", doc, (), choices=tuple(choices), **further)


def flag(doc: str, default: object = attrs.NOTHING, **further: Any) -> Field:
    return _field("flag", doc, default, **further)


def vector(doc: str, unit: str = "", default: object = attrs.NOTHING, **bounds: object) -> Field:
    """Declare a list of floats, stored as a tuple. Bounds apply to each float."""
    return _field("vector", doc, default, unit, **bounds)


def matrix(doc: str, unit: str = "", default: object = attrs.NOTHING, large: bool = False) -> Field:
    """Declare a matrix: a list of rows of equal length, stored as a tuple of tuples, or a CSV file of rows.

    The path is resolved as in :func:`path`. The numbers of a CSV file are stored and recorded. A ``large``
    matrix may also be in a Matrix Market or npz file. For these files, and for CSV files with more than
    ``validation.TAKEN_IN`` rows, the path is stored and recorded instead.
    """
    return _field("matrix", doc, default, unit, large=large)


def component(family: str, doc: str, default: object = attrs.NOTHING, after: str = "") -> Field:
    """Declare a section with a ``type`` of ``family``. Its value is the Params of this component.

    ``default`` is None for an optional section, or else the data that replace an omitted section. ``after`` names
    the field of the component whose output is the input of this component.
    """
    return _field("component", doc, default, family=family, after=after)


def components(family: str, doc: str) -> Field:
    """Declare a mapping of names to sections with a ``type`` of ``family``, empty by default."""
    return _field("components", doc, attrs.Factory(dict), family=family)


def section(cls: type, doc: str, default: object = attrs.NOTHING) -> Field:
    """Declare a section without a ``type``. Its value is an instance of ``cls``.

    If ``cls`` has no required parameters, an omitted section becomes ``cls()`` unless ``default`` is set.
    """
    if default is attrs.NOTHING and not required_names(cls):
        default = attrs.Factory(cls)
    return _field("section", doc, default, cls=cls)


def sections(cls: type, doc: str, optional: bool = False) -> Field:
    """Declare a mapping of names to instances of ``cls``. Unless ``optional``, at least one is required."""
    return _field("sections", doc, attrs.Factory(dict) if optional else attrs.NOTHING, cls=cls)


def mapping(doc: str) -> Field:
    """Declare a mapping of names to plain values, empty by default."""
    return _field("mapping", doc, attrs.Factory(dict))


def is_declared(cls: type) -> bool:
    return bool(attrs.has(cls))


def is_params(value: object) -> bool:
    return is_declared(type(value))


def type_of(built: object) -> str:
    return str(getattr(type(built), "type_name", ""))


def _declared(cls: type) -> Mapping[str, Spec]:
    return {field.name: field.metadata[_KEY] for field in attrs.fields(cls)}


declared: Callable[[type], Mapping[str, Spec]] = cache(_declared)


def required_names(cls: type) -> list[str]:
    return [name for name, spec in declared(cls).items() if spec.required]


def evolved(built: T, **values: object) -> T:
    return attrs.evolve(built, **values)  # type: ignore[misc]


def completed(built: T, name: str, value: object) -> T:
    """Return ``built`` with ``value`` for the parameter ``name`` if this parameter exists and is None."""
    if name not in declared(type(built)) or getattr(built, name) is not None:
        return built
    return evolved(built, **{name: value})


def check_one_of(path: str, fields: object, first: str, second: str, hint: str = "") -> None:
    """Raise ConfigError unless exactly one of the keys ``first`` and ``second`` is set."""
    unset = [name for name in (first, second) if getattr(fields, name) is None]
    if len(unset) != 1:
        state = "neither is given" if unset else "both are given"
        raise ConfigError(
            f"{path}: exactly one of {path}.{first} and {path}.{second} is required, but {state}{hint}"
        )


def unchanged(displacement: Array, velocity: Array) -> tuple[Array, Array]:
    return displacement, velocity


@dataclass(frozen=True)
class TestContext:
    """Properties of a test, for checks of parameters. Values per axis are in the order of ``axes``."""

    __test__: ClassVar[bool] = False  # not a test case of pytest

    axes: tuple[str, ...]
    velocity_limits: tuple[float, ...]
    """Velocity limits, m/s."""
    displacement_noise_rms: tuple[float, ...]
    """RMS noise of the displacement sensors, m."""
    servo_rate: float
    """Sampling rate of the rig, Hz."""
    dt: float
    """Servo period, s."""
    step: float
    """Integration step in structure time, s."""
    substeps: int
    """Samples per integration step, as stated in the scenario."""
    samples_per_step: int
    """Samples per integration step on the rig: ``substeps`` times the time ratio."""
    duration: float
    """Duration of the test in structure time, s."""
    ramp: str
    has_structure: bool
    """False for a prescribed motion, which has no closed loop."""
    has_soft_start: bool
    has_ground_motion: bool = False
    has_gravity: bool = False
    """True if the structure has gravity loads."""
    gravity_of_rig: tuple[float, ...] | None = None
    """Gravity loads that the rig applies, as declared by the structure, N; None if not declared."""
    observed: tuple[str, ...] = ()
    """Names of the degrees of freedom that follow the interface degrees of freedom in a Target."""
    transport: float = 0.0
    """Time until a command takes effect, as declared by the port, s."""
    behind: bool = False
    """True for a compensator whose target is the output of another compensator, not of the ramp."""
    force_axes: tuple[str, ...] = ()
    """Names of force-controlled axes, the last entries of ``axes``."""
    strokes: tuple[float, ...] = ()
    """Strokes of the axes, m."""
    force_lead: float | None = None
    """Extrapolation time of measured forces, s; None if forces are not extrapolated."""
    to_axes: Callable[[Array, Array], tuple[Array, Array]] = field(default=unchanged, compare=False)
    """Function that converts displacements (m) and velocities (m/s) from degrees of freedom ``(n, n_dof)`` to axes
    ``(n, n_axes)``."""
    axis: str = ""
    """Name of the component's axis; empty if the component has no axis or serves all axes."""

    def check_order(self, key: str, names: Iterable[str]) -> None:
        """Raise ConfigError unless ``names``, the value of parameter ``key``, equals ``axes``."""
        if (listed := tuple(names)) != self.axes:
            shown, axes = ", ".join(listed) or "none", ", ".join(self.axes)
            raise ConfigError(
                f"{key}: is for the axes {shown}, but must be for the axes of the test in their order, {axes}"
            )

    def of_first(self, n: int) -> TestContext:
        if n == len(self.axes):
            return self
        rows = ("axes", "velocity_limits", "displacement_noise_rms", "strokes")
        return replace(self, **{name: getattr(self, name)[:n] for name in rows})

    @property
    def velocity_limit(self) -> float | None:
        """Velocity limit of the component's axis, m/s; None if the component has no axis."""
        return self.velocity_limits[self.axes.index(self.axis)] if self.axis else None


class ChecksScenario:
    """Default implementations of the optional methods of a ``Params`` class."""

    def validate(self, path: str) -> None:
        """Raise ConfigError for contradictory fields. ``path`` is the path of the component in the scenario."""

    def spans(self) -> Mapping[str, float]:
        """Return the history (s) that the component needs for each parameter. A shorter test is refused."""
        return {}

    def reads(self) -> Sequence[Path]:
        """Return the installed files that the component reads. Raises ConfigError if a file is missing."""
        return ()

    def fits(self, test: TestContext) -> None:
        """Raise ConfigError for a test in which the component cannot work.

        The message begins with the parameter, e.g. ``watchdog = 0.001 s: must be ...``. The caller adds a path.
        """

    def cautions(self, test: TestContext) -> list[str]:
        """Return warnings about permitted settings that are dangerous or doubtful in this test."""
        return []

    def contents(self) -> list[str]:
        """Return lines for ``rths check`` about the contents of files that the parameters name."""
        return []

    def stop_groups(self, n_moved: int, n_axes: int) -> tuple[int, ...]:
        """Return a group number for each axis of a setup. Axes with the same number must stop together.

        The setup moves the first ``n_moved`` axes. The other axes are controlled by force.
        """
        return (0,) * n_axes

    def remarks(self, state: Mapping[str, float]) -> list[str]:
        """Return remarks on a compensator after a test. ``state`` maps its internal quantities to final values."""
        return []


def _add_members(cls: type, source: type) -> None:
    for base in source.__mro__[:-1]:
        for name, value in vars(base).items():
            if not name.startswith("_") and not hasattr(cls, name):
                setattr(cls, name, value)


class OfParams(ChecksScenario):
    """Default attributes of every ``Params``. A parameter of the same name takes precedence."""

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
    """True if the far end stops the rig when the heartbeat ends; None: true if the port has ``drop_heartbeat``."""


class OfIntegratorParams(OfParams):
    observes: bool = False
    """True if an integrator without a structure also returns displacements of degrees of freedom that have no
    axis; the scenario lists them as ``observed``."""
    who: str = ""
    """Program that defines the excitation, as named in messages; empty if the scenario defines the excitation."""
    experimental_stiffness: Any = None
    """Specimen stiffness that an external integrator assumes, ``(n_dof, n_dof)`` N/m."""
    equivalent_damping: object = None
    """Specimen damping that an external integrator assumes, N s/m."""
    displacement: Any = None
    history: str | None = None
    proportional_to: str = ""
    """Parameter to which all targets from a file are proportional, or an empty string."""
    ground: object = None
    """Input of an external integrator for the ground motion of the scenario; None without such an input."""


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
    """Constants of the rig, given in place of a model file."""
    inverse: Any = None
    """Gains of an identified inverse, given in place of a model file."""


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


def complete(family: str, component: Any) -> None:
    _add_members(component, OfComponent)
    _add_members(component.Params, of_params(family))


def recorded(family: str, kind: str, values: Mapping[str, object], reason: str) -> object:
    """Return the unchecked parameters of a recorded component of type ``kind`` that cannot be built here.

    ``registry.class_of`` refuses these parameters with the ``reason``.
    """
    fields = {
        name: attrs.field(metadata={_KEY: Spec("recorded", "", attrs.NOTHING)})
        for name in values
        if name.isidentifier() and not iskeyword(name) and not name.startswith("_")
    }
    base = type("Recorded", (of_params(family),), _RECORDED.get(family, {}))
    cls = attrs.make_class("Recorded", fields, (base,), frozen=True, kw_only=True)
    cls.type_name, cls.cannot_be_built = kind, reason  # type: ignore[attr-defined]
    return cls(**{name: values[name] for name in fields})
