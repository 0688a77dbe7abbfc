# SPDX-License-Identifier: Apache-2.0
"""Declaration of parameters: once, beside the algorithm, with unit, bounds and a sentence.

A component's ``Params`` is a frozen attrs class whose fields come from :func:`number`, :func:`integer`,
:func:`text`, :func:`texts`, :func:`path`, :func:`flag`, :func:`vector`, :func:`matrix`, :func:`component`,
:func:`components`, :func:`section`, :func:`sections` and :func:`mapping`. From that declaration come the strict
YAML check (``strict.build``), the ROS parameter with its range, ``rths params`` and the generated parameter page
(``parameter_table.table``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from keyword import iskeyword
from typing import Any, TypeVar, dataclass_transform

import attrs

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def params(cls: type[T]) -> type[T]:
    """Class decorator of every ``Params``: frozen, keyword-only. Raises TypeError for a bare field."""
    made: Any = attrs.frozen(kw_only=True, slots=True)(cls)
    bare = ", ".join(field.name for field in attrs.fields(made) if _KEY not in field.metadata)
    if bare:
        raise TypeError(f"{cls.__qualname__}: {bare}: give each by number(), text(), flag() or the like")
    checked: type[T] = made
    return checked


_KEY = "rths"


@attrs.frozen
class Spec:
    """Declaration of one parameter: kind, unit, bounds, choices, meaning."""

    kind: str
    doc: str
    unit: str = ""
    at_least: float | None = None
    more_than: float | None = None
    at_most: float | None = None
    less_than: float | None = None
    choices: tuple[str, ...] = ()
    family: str = ""
    cls: type | None = None
    optional: bool = False
    large: bool = False
    """True for a matrix that may stay in its file."""
    default_data: Mapping[str, Any] | None = None
    after: str = ""
    opens: str = ""
    """Name of the field beside a Python program that lists the files which the program opens."""
    places: Mapping[str, str] = attrs.field(factory=dict)
    """Where an option of a run is offered, and what it is called there; empty for other parameters."""

    @property
    def bound(self) -> str:
        """The bounds in words, e.g. ``> 0 and <= 1``; empty where there is none."""
        pairs = ((">=", self.at_least), (">", self.more_than), ("<=", self.at_most), ("<", self.less_than))
        words = [f"{sign} {value:g}" for sign, value in pairs if value is not None]
        if self.choices:
            words.append("one of " + ", ".join(self.choices))
        return " and ".join(words)

    def admits(self, value: float) -> bool:
        """True when the number lies within the bounds."""
        return not (
            (self.at_least is not None and value < self.at_least)
            or (self.more_than is not None and value <= self.more_than)
            or (self.at_most is not None and value > self.at_most)
            or (self.less_than is not None and value >= self.less_than)
        )


def _field(spec: Spec, default: Any) -> Any:
    return attrs.field(default=default, metadata={_KEY: spec})


def number(doc: str, unit: str = "", default: Any = attrs.NOTHING, **bounds: Any) -> Any:
    """A float; integers are widened, booleans, text, nan and inf refused. ``default=None`` makes it optional."""
    return _field(Spec("number", doc, unit, optional=default is None, **bounds), default)


def integer(doc: str, unit: str = "", default: Any = attrs.NOTHING, **bounds: Any) -> Any:
    """A whole number; fractions are refused."""
    return _field(Spec("integer", doc, unit, optional=default is None, **bounds), default)


def text(doc: str, default: Any = attrs.NOTHING, choices: Iterable[str] = (), **further: Any) -> Any:
    """Text, perhaps one of a few ``choices``."""
    return _field(Spec("text", doc, choices=tuple(choices), optional=default is None, **further), default)


def path(doc: str, default: Any = attrs.NOTHING, opens: str = "") -> Any:
    """A file. In a scenario file it is relative to that file, elsewhere to the working directory.

    ``opens`` is for a Python program: modules that it imports from below its folder belong to it, and the files,
    relative to it, that the field ``opens`` lists.
    """
    return _field(Spec("path", doc, optional=default is None, opens=opens), default)


def texts(doc: str, choices: Iterable[str] = (), **further: Any) -> Any:
    """A list of texts, kept as a tuple, each perhaps one of a few ``choices``; empty if left out."""
    return _field(Spec("texts", doc, choices=tuple(choices), **further), ())


def flag(doc: str, default: Any = attrs.NOTHING, **further: Any) -> Any:
    """True or false."""
    return _field(Spec("flag", doc, **further), default)


def vector(doc: str, unit: str = "", default: Any = attrs.NOTHING, **bounds: Any) -> Any:
    """A list of floats, kept as a tuple; a bound holds for each."""
    return _field(Spec("vector", doc, unit, optional=default is None, **bounds), default)


def matrix(doc: str, unit: str = "", default: Any = attrs.NOTHING, large: bool = False) -> Any:
    """A list of rows of equal length, kept as a tuple of tuples; or the CSV file that has them.

    The file is found as that of a :func:`path`; what is kept, and recorded, are its numbers. One that may be
    ``large`` may stand in a file of Matrix Market or npz, too. Of these, and of a CSV file with more than
    ``strict.TAKEN_IN`` rows, the path is kept and recorded.
    """
    return _field(Spec("matrix", doc, unit, optional=default is None, large=large), default)


def component(family: str, doc: str, default: Any = attrs.NOTHING, after: str = "") -> Any:
    """A section with a ``type`` out of ``family``; its value is that component's Params.

    ``default`` is None for an optional section, or the data (``{"type": ...}``) that is built when it is missing.
    ``after`` names the field beside it whose component hands on to this one.
    """
    data = default if isinstance(default, Mapping) else None
    spec = Spec("component", doc, family=family, optional=default is None, default_data=data, after=after)
    return attrs.field(default=None if data is not None else default, metadata={_KEY: spec})


def components(family: str, doc: str) -> Any:
    """A mapping of names to sections with a ``type`` out of ``family``; empty if left out."""
    return attrs.field(factory=dict, metadata={_KEY: Spec("components", doc, family=family)})


def section(cls: type, doc: str, default: Any = attrs.NOTHING) -> Any:
    """A section without a ``type``, built into ``cls``; left out, it has the defaults of ``cls``."""
    if default is attrs.NOTHING and not required_names(cls):
        return attrs.field(factory=cls, metadata={_KEY: Spec("section", doc, cls=cls)})
    return _field(Spec("section", doc, cls=cls, optional=default is None), default)


def sections(cls: type, doc: str, optional: bool = False) -> Any:
    """A mapping of names to sections built into ``cls``; at least one unless ``optional``."""
    spec = Spec("sections", doc, cls=cls, optional=optional)
    return attrs.field(factory=dict, metadata={_KEY: spec}) if optional else _field(spec, attrs.NOTHING)


def mapping(doc: str) -> Any:
    """A mapping of names to values as they stand; empty if left out."""
    return attrs.field(factory=dict, metadata={_KEY: Spec("mapping", doc)})


def spec_of(attribute: Any) -> Spec:
    """The :class:`Spec` of an attrs attribute made by the functions above."""
    found: Spec = attribute.metadata[_KEY]
    return found


def is_params(value: Any) -> bool:
    """True for checked parameters: a section of a scenario."""
    return bool(attrs.has(type(value)))


def type_of(built: Any) -> str:
    """Return the type of the parameters of a component; empty for whatever else ``built`` is."""
    return str(getattr(type(built), "type_name", ""))


def declared(cls: type) -> dict[str, Spec]:
    """Return the declarations of the parameters of a Params class, by name, in their order."""
    return {field.name: spec_of(field) for field in attrs.fields(cls)}


def left_out(cls: type, name: str) -> Any:
    """Return the default of the parameter ``name`` of ``cls``, as data or built; None where it has none."""
    field = attrs.fields_dict(cls)[name]
    default: Any = field.default
    if hasattr(default, "factory"):
        return default.factory()
    return spec_of(field).default_data if default in (None, attrs.NOTHING) else default


def required_names(cls: type) -> list[str]:
    """Names of the fields of ``cls`` without a default."""
    return [field.name for field in attrs.fields(cls) if field.default is attrs.NOTHING]


def evolved(built: T, **values: Any) -> T:
    """``built`` with other ``values``, which are not checked."""
    return attrs.evolve(built, **values)  # type: ignore[misc]


def completed(built: T, name: str, value: Any) -> T:
    """``built``, with ``value`` for the parameter ``name`` where it has one that was left out (None)."""
    if name not in declared(type(built)) or getattr(built, name) is not None:
        return built
    return evolved(built, **{name: value})


def recorded(kind: str, values: Mapping[str, Any], reason: str, declared: type = object) -> Any:
    """Parameters of a component of type ``kind`` as they were recorded, unchecked: it cannot be built here.

    What they may declare is as in the class ``declared``. ``registry.class_of`` refuses them with the ``reason``.
    """
    fields = {
        name: attrs.field(metadata={_KEY: Spec("recorded", "")})
        for name in values
        if name.isidentifier() and not iskeyword(name) and not name.startswith("_")
    }
    cls = attrs.make_class("Recorded", fields, (declared,), frozen=True, kw_only=True)
    cls.type_name, cls.cannot_be_built = kind, reason  # type: ignore[attr-defined]
    return cls(**{name: values[name] for name in fields})
