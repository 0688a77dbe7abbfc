# SPDX-License-Identifier: Apache-2.0
"""Declaration of parameters: once, beside the algorithm, with unit, bounds and a sentence.

A component's ``Params`` is a frozen attrs class whose fields come from :func:`number`, :func:`integer`,
:func:`text`, :func:`texts`, :func:`path`, :func:`flag`, :func:`vector`, :func:`matrix`, :func:`component`,
:func:`components`, :func:`section`, :func:`sections` and :func:`mapping`. From that declaration come the strict
YAML check (``strict.build``), the ROS parameter with its range, ``rths params`` and the generated parameter page
(``parameter_table.table``).
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
"""A field of a class, which is of the type that stands beside it: what ``attrs.field`` is, too."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
def params(cls: type[T]) -> type[T]:
    """Class decorator of every ``Params``: frozen, keyword-only, with all methods of ``checks.ChecksScenario``.

    Raises TypeError for a bare field.
    """
    made: Any = attrs.frozen(kw_only=True, slots=True)(cls)
    bare = ", ".join(field.name for field in attrs.fields(made) if _KEY not in field.metadata)
    if bare:
        raise TypeError(f"{cls.__qualname__}: {bare}: give each by number(), text(), flag() or the like")
    checks.complete(made)
    checked: type[T] = made
    return checked


_KEY = "rths"


@attrs.frozen
class Spec:
    """Declaration of one parameter: kind, unit, bounds, choices, meaning."""

    kind: str
    doc: str
    default: Any
    """A value, data to build it from, or an ``attrs.Factory``; NOTHING for one that must be given."""
    unit: str = ""
    at_least: float | None = None
    more_than: float | None = None
    at_most: float | None = None
    less_than: float | None = None
    choices: tuple[str, ...] = ()
    family: str = ""
    cls: type | None = None
    large: bool = False
    """True for a matrix that may stay in its file."""
    after: str = ""
    opens: str = ""
    """Name of the field beside a Python program that lists the files which the program opens."""
    runs: bool = False
    """True for a file that is a program."""
    places: Mapping[str, str] = attrs.field(factory=dict)
    """Where an option of a run is offered, and what it is called there; empty for other parameters."""

    @property
    def required(self) -> bool:
        return self.default is attrs.NOTHING

    @property
    def left_out(self) -> object:
        """The default, as data or built; None where there is none."""
        if isinstance(self.default, attrs.Factory):  # type: ignore[arg-type]
            return self.default.factory()
        return None if self.required else self.default

    @property
    def bound(self) -> str:
        """The bounds in words, e.g. ``> 0 and <= 1``; empty where there is none."""
        pairs = ((">=", self.at_least), (">", self.more_than), ("<=", self.at_most), ("<", self.less_than))
        words = [f"{sign} {value:g}" for sign, value in pairs if value is not None]
        if self.choices:
            words.append("one of " + ", ".join(self.choices))
        return " and ".join(words)


def _field(kind: str, doc: str, default: object, unit: str = "", **further: Any) -> object:
    stands = None if isinstance(default, Mapping) else default
    return attrs.field(default=stands, metadata={_KEY: Spec(kind, doc, default, unit, **further)})


def number(doc: str, unit: str = "", default: object = attrs.NOTHING, **bounds: object) -> Field:
    """A float; integers are widened, booleans, text, nan and inf refused. ``default=None`` makes it optional."""
    return _field("number", doc, default, unit, **bounds)


def integer(doc: str, unit: str = "", default: object = attrs.NOTHING, **bounds: object) -> Field:
    """A whole number; fractions are refused."""
    return _field("integer", doc, default, unit, **bounds)


def text(doc: str, default: object = attrs.NOTHING, choices: Iterable[str] = (), **further: Any) -> Field:
    """Text, perhaps one of a few ``choices``."""
    return _field("text", doc, default, choices=tuple(choices), **further)


def path(doc: str, default: object = attrs.NOTHING, opens: str = "", runs: bool = False) -> Field:
    """A file. In a scenario file it is relative to that file, elsewhere to the working directory.

    One that ``runs`` is a program, with all rights of the user.

    ``opens`` is for a Python program: modules that it imports from below its folder belong to it, and the files,
    relative to it, that the field ``opens`` lists.
    """
    return _field("path", doc, default, opens=opens, runs=runs or bool(opens))


def texts(doc: str, choices: Iterable[str] = (), **further: Any) -> Field:
    """A list of texts, kept as a tuple, each perhaps one of a few ``choices``; empty if left out."""
    return _field("texts", doc, (), choices=tuple(choices), **further)


def flag(doc: str, default: object = attrs.NOTHING, **further: Any) -> Field:
    return _field("flag", doc, default, **further)


def vector(doc: str, unit: str = "", default: object = attrs.NOTHING, **bounds: object) -> Field:
    """A list of floats, kept as a tuple; a bound holds for each."""
    return _field("vector", doc, default, unit, **bounds)


def matrix(doc: str, unit: str = "", default: object = attrs.NOTHING, large: bool = False) -> Field:
    """A list of rows of equal length, kept as a tuple of tuples; or the CSV file that has them.

    The file is found as that of a :func:`path`; what is kept, and recorded, are its numbers. One that may be
    ``large`` may stand in a file of Matrix Market or npz, too. Of these, and of a CSV file with more than
    ``strict.TAKEN_IN`` rows, the path is kept and recorded.
    """
    return _field("matrix", doc, default, unit, large=large)


def component(family: str, doc: str, default: object = attrs.NOTHING, after: str = "") -> Field:
    """A section with a ``type`` out of ``family``; its value is that component's Params.

    ``default`` is None for an optional section, or the data (``{"type": ...}``) that is built when it is missing.
    ``after`` names the field beside it whose component hands on to this one.
    """
    return _field("component", doc, default, family=family, after=after)


def components(family: str, doc: str) -> Field:
    """A mapping of names to sections with a ``type`` out of ``family``; empty if left out."""
    return _field("components", doc, attrs.Factory(dict), family=family)


def section(cls: type, doc: str, default: object = attrs.NOTHING) -> Field:
    """A section without a ``type``, built into ``cls``; left out, it has the defaults of ``cls``."""
    if default is attrs.NOTHING and not required_names(cls):
        default = attrs.Factory(cls)
    return _field("section", doc, default, cls=cls)


def sections(cls: type, doc: str, optional: bool = False) -> Field:
    """A mapping of names to sections built into ``cls``; at least one unless ``optional``."""
    return _field("sections", doc, attrs.Factory(dict) if optional else attrs.NOTHING, cls=cls)


def mapping(doc: str) -> Field:
    """A mapping of names to values as they stand; empty if left out."""
    return _field("mapping", doc, attrs.Factory(dict))


def is_params(value: object) -> bool:
    return bool(attrs.has(type(value)))


def type_of(built: object) -> str:
    return str(getattr(type(built), "type_name", ""))


def _declared(cls: type) -> Mapping[str, Spec]:
    return {field.name: field.metadata[_KEY] for field in attrs.fields(cls)}


declared: Callable[[type], Mapping[str, Spec]] = cache(_declared)
"""Return the declarations of the parameters of a Params class, by name, in their order."""


def required_names(cls: type) -> list[str]:
    return [name for name, spec in declared(cls).items() if spec.required]


def evolved(built: T, **values: object) -> T:
    """``built`` with other ``values``, which are not checked."""
    return attrs.evolve(built, **values)  # type: ignore[misc]


def completed(built: T, name: str, value: object) -> T:
    """``built``, with ``value`` for the parameter ``name`` where it has one that was left out (None)."""
    if name not in declared(type(built)) or getattr(built, name) is not None:
        return built
    return evolved(built, **{name: value})


def recorded(kind: str, values: Mapping[str, object], reason: str, declared: type = object) -> object:
    """Parameters of a component of type ``kind`` as they were recorded, unchecked: it cannot be built here.

    What they may declare is as in the class ``declared``. ``registry.class_of`` refuses them with the ``reason``.
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
