# SPDX-License-Identifier: Apache-2.0
"""Declarations of parameters with unit, bounds and description, next to the algorithm that uses them.

A component's ``Params`` is a frozen attrs class whose fields come from the functions of this module. The
declarations define the strict YAML check (``validation.from_data``), ROS parameters with their ranges, ``rths
params`` and the generated parameter pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from keyword import iskeyword
from typing import Any, TypeAlias, TypeVar, dataclass_transform

import attrs

from rths_nodes.core import checks

T = TypeVar("T")
Field: TypeAlias = Any
"""Field of a class, typed by its annotation, as in ``attrs.field``."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
def params(cls: type[T]) -> type[T]:
    """Class decorator of every ``Params``: frozen, keyword-only, with all methods of ``checks.ChecksScenario``.

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
        raise TypeError(
            f"{cls.__qualname__}: {bare}: must be declared with number(), text() or a similar function"
        )
    checks.complete(made)
    checked: type[T] = made
    return checked


def fields_from(fields: Mapping[str, Field]) -> Callable[[type[T]], type[T]]:
    """Return a class decorator, applied before :func:`params`, that inserts ``fields`` before existing fields."""

    def extended(cls: type[T]) -> type[T]:
        for name, field in fields.items():
            setattr(cls, name, field)
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
    """Names of this option in each interface; empty if the parameter is not an option of a run."""

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
    """Declare a float, optional if ``default=None``. Only integers are converted; NaN and inf are refused."""
    return _field("number", doc, default, unit, **bounds)


def integer(doc: str, unit: str = "", default: object = attrs.NOTHING, **bounds: object) -> Field:
    """Declare an integer; fractions are refused."""
    return _field("integer", doc, default, unit, **bounds)


def text(doc: str, default: object = attrs.NOTHING, choices: Iterable[str] = (), **further: Any) -> Field:
    """Declare a string, optionally one of ``choices``."""
    return _field("text", doc, default, choices=tuple(choices), **further)


def path(
    doc: str, default: object = attrs.NOTHING, opens: str = "", runs: bool = False, columns: bool = False
) -> Field:
    """Declare a file. In a scenario file its path is relative to that file, otherwise to the working directory.

    A file that ``runs`` is a program, which has all rights of the user. ``opens`` names the field that lists the
    files opened by a Python program, relative to the program. These files, and imported modules below the
    program's folder, belong to the program. With ``columns``, a mapping of columns may replace the path in data.
    Recordings contain a copy of the file.
    """
    return _field("path", doc, default, opens=opens, runs=runs or bool(opens), columns=columns)


def texts(doc: str, choices: Iterable[str] = (), **further: Any) -> Field:
    """Declare a list of strings, stored as a tuple, by default empty. ``choices`` limits each string."""
    return _field("texts", doc, (), choices=tuple(choices), **further)


def flag(doc: str, default: object = attrs.NOTHING, **further: Any) -> Field:
    return _field("flag", doc, default, **further)


def vector(doc: str, unit: str = "", default: object = attrs.NOTHING, **bounds: object) -> Field:
    """Declare a list of floats, stored as a tuple; bounds apply to each float."""
    return _field("vector", doc, default, unit, **bounds)


def matrix(doc: str, unit: str = "", default: object = attrs.NOTHING, large: bool = False) -> Field:
    """Declare a list of rows of equal length, stored as a tuple of tuples, or a CSV file with the rows.

    The file is located like a :func:`path`; its numbers are stored and recorded. A ``large`` matrix may also be in
    a Matrix Market or npz file. For such a file, and for a CSV file with more than ``validation.TAKEN_IN`` rows,
    the path is stored and recorded.
    """
    return _field("matrix", doc, default, unit, large=large)


def component(family: str, doc: str, default: object = attrs.NOTHING, after: str = "") -> Field:
    """Declare a section with a ``type`` of ``family``; its value is the Params of this component.

    ``default`` is None for an optional section, otherwise the data of an omitted section. ``after`` names the
    field of the component whose output is the input of this component.
    """
    return _field("component", doc, default, family=family, after=after)


def components(family: str, doc: str) -> Field:
    """Declare a mapping of names to sections with a ``type`` of ``family``; by default empty."""
    return _field("components", doc, attrs.Factory(dict), family=family)


def section(cls: type, doc: str, default: object = attrs.NOTHING) -> Field:
    """Declare a section without a ``type``; its value is an instance of ``cls``.

    Without ``default``, an omitted section has the defaults of ``cls`` if ``cls`` has no required parameters.
    """
    if default is attrs.NOTHING and not required_names(cls):
        default = attrs.Factory(cls)
    return _field("section", doc, default, cls=cls)


def sections(cls: type, doc: str, optional: bool = False) -> Field:
    """Declare a mapping of names to instances of ``cls``; unless ``optional``, at least one is required."""
    return _field("sections", doc, attrs.Factory(dict) if optional else attrs.NOTHING, cls=cls)


def mapping(doc: str) -> Field:
    """Declare a mapping of names to plain values; by default empty."""
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
    """Return ``built`` with its parameter ``name`` set to ``value``, if this parameter exists and is None."""
    if name not in declared(type(built)) or getattr(built, name) is not None:
        return built
    return evolved(built, **{name: value})


def recorded(kind: str, values: Mapping[str, object], reason: str, declared: type = object) -> object:
    """Return unchecked parameters of a recorded component of type ``kind`` that cannot be built here.

    Their class inherits default attributes from ``declared``. ``registry.class_of`` refuses these parameters with
    the ``reason``.
    """
    fields = {
        name: attrs.field(metadata={_KEY: Spec("recorded", "", attrs.NOTHING)})
        for name in values
        if name.isidentifier() and not iskeyword(name) and not name.startswith("_")
    }
    cls = attrs.make_class("Recorded", fields, (declared,), frozen=True, kw_only=True)
    cls.type_name, cls.cannot_be_built = kind, reason  # type: ignore[attr-defined]
    checks.complete(cls)
    return cls(**{name: values[name] for name in fields})
