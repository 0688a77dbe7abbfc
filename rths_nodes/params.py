"""Parameters: declared once, beside the algorithm that uses them, with unit, bounds and a sentence.

A component's ``Params`` is a frozen attrs class whose fields come from :func:`number`, :func:`integer`,
:func:`text`, :func:`flag`, :func:`vector`, :func:`matrix`, :func:`component`, :func:`section`, :func:`sections`
and :func:`mapping`. From that declaration come the strict YAML check (:func:`build`), the ROS parameter with its
range, ``rths params`` and the generated parameter page (:func:`table`).

Everything that is wrong with an input raises :class:`ConfigError`: one message with path, value, unit, bound
and the known names.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, dataclass_transform

import attrs

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def params(cls: type[T]) -> type[T]:
    """Class decorator of every ``Params``: frozen, keyword-only."""
    return attrs.frozen(kw_only=True, slots=True)(cls)


_KEY = "rths"

SMALLEST, LARGEST = 1e-50, 1e50
"""Magnitudes of numbers in SI units: beyond, there is no rig, and squares and quotients overflow."""


class ConfigError(ValueError):
    """Input that is refused before anything moves (exit code 2)."""


@attrs.frozen
class Spec:
    """What is known of one parameter: kind, unit, bounds, choices, meaning."""

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
    default_data: Mapping[str, Any] | None = None

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


def text(doc: str, default: Any = attrs.NOTHING, choices: Iterable[str] = ()) -> Any:
    """Text, perhaps one of a few ``choices``."""
    return _field(Spec("text", doc, choices=tuple(choices), optional=default is None), default)


def flag(doc: str, default: Any = attrs.NOTHING) -> Any:
    """True or false."""
    return _field(Spec("flag", doc), default)


def vector(doc: str, unit: str = "", default: Any = attrs.NOTHING, **bounds: Any) -> Any:
    """A list of floats, kept as a tuple; a bound holds for each."""
    return _field(Spec("vector", doc, unit, optional=default is None, **bounds), default)


def matrix(doc: str, unit: str = "", default: Any = attrs.NOTHING) -> Any:
    """A list of rows of equal length, kept as a tuple of tuples."""
    return _field(Spec("matrix", doc, unit, optional=default is None), default)


def component(family: str, doc: str, default: Any = attrs.NOTHING) -> Any:
    """A section with a ``type`` out of ``family``; its value is that component's Params.

    ``default`` is None for an optional section, or the data (``{"type": ...}``) that is built when it is missing.
    """
    data = default if isinstance(default, Mapping) else None
    spec = Spec("component", doc, family=family, optional=default is None, default_data=data)
    return attrs.field(default=None if data is not None else default, metadata={_KEY: spec})


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


def required_names(cls: type) -> list[str]:
    """Names of the fields of ``cls`` without a default."""
    return [field.name for field in attrs.fields(cls) if field.default is attrs.NOTHING]


def join(path: str, key: object) -> str:
    """``axes`` and ``story_1`` -> ``axes.story_1``."""
    return f"{path}.{key}" if path else str(key)


def show(value: Any, unit: str = "") -> str:
    """A value as it is shown in a message: short, with its unit."""
    unit = "" if unit == "1" else unit  # a number without a dimension
    shown = repr(value) if not isinstance(value, float) else f"{value:g}"
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return f"{shown} {unit}".rstrip()


def unknown(path: str, kind: str, name: object, known: Iterable[str]) -> ConfigError:
    """The error for a name that nobody knows: says what is known and what was probably meant."""
    names = sorted(known)
    guess = difflib.get_close_matches(str(name), names, 1)
    hint = f" (did you mean {guess[0]!r}?)" if guess else ""
    return ConfigError(f"{path}: unknown {kind} {name!r}{hint}; known: {', '.join(names) or 'none'}")


def checked_number(spec: Spec, value: Any, path: str) -> float:
    """``value`` as a finite float within the bounds of ``spec``, or :class:`ConfigError`."""
    unit = "" if spec.unit == "1" else spec.unit
    wanted = f"a number{' in ' + unit if unit else ''}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{path} = {show(value)}: must be {wanted}")
    try:
        result = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        result = math.inf
    if not math.isfinite(result):
        raise ConfigError(f"{path} = {show(value)}: must be finite, {wanted}")
    if result and spec.kind != "integer" and not SMALLEST <= abs(result) <= LARGEST:
        raise ConfigError(f"{path} = {show(value)}: must be 0 or of a magnitude of {SMALLEST:g} to {LARGEST:g}")
    if not spec.admits(result):
        raise ConfigError(f"{path} = {show(result, unit)}: must be {spec.bound}{' ' + unit if unit else ''}")
    return result


def _integer(spec: Spec, value: Any, path: str) -> int:
    whole = value.is_integer() if isinstance(value, float) else isinstance(value, int)
    if isinstance(value, bool) or not whole:
        raise ConfigError(
            f"{path} = {show(value)}: must be a whole number{' of ' + spec.unit if spec.unit else ''}"
        )
    checked_number(spec, value, path)
    return int(value)


def _text(spec: Spec, value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{path} = {show(value)}: must be text")
    if spec.choices and value not in spec.choices:
        raise unknown(path, "value", value, spec.choices)
    return value


def _flag(spec: Spec, value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{path} = {show(value)}: must be true or false")
    return value


def _vector(spec: Spec, value: Any, path: str) -> tuple[float, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise ConfigError(
            f"{path} = {show(value)}: must be a list of numbers{' in ' + spec.unit if spec.unit else ''}"
        )
    return tuple(checked_number(spec, entry, f"{path}[{index}]") for index, entry in enumerate(value))


def _matrix(spec: Spec, value: Any, path: str) -> tuple[tuple[float, ...], ...]:
    if not isinstance(value, (list, tuple)) or not value:
        raise ConfigError(f"{path} = {show(value)}: must be a list of rows")
    rows = tuple(_vector(spec, row, f"{path}[{index}]") for index, row in enumerate(value))
    if len({len(row) for row in rows}) != 1:
        raise ConfigError(f"{path}: rows of different length ({', '.join(str(len(row)) for row in rows)})")
    return rows


def _component(spec: Spec, value: Any, path: str) -> Any:
    from rths_nodes import registry

    if attrs.has(type(value)):
        return value
    known = registry.names(spec.family)
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path} = {show(value)}: must be a section with a type out of: {', '.join(known)}")
    if "type" not in value:
        raise ConfigError(f"{path}.type: missing; known: {', '.join(known)}")
    cls = registry.load(spec.family, value["type"], join(path, "type"))
    return build(cls.Params, {key: entry for key, entry in value.items() if key != "type"}, path)


def _section(spec: Spec, value: Any, path: str) -> Any:
    assert spec.cls is not None
    return value if isinstance(value, spec.cls) else build(spec.cls, {} if value is None else value, path)


def _sections(spec: Spec, value: Any, path: str) -> dict[str, Any]:
    assert spec.cls is not None
    if not isinstance(value, Mapping) or not (value or spec.optional):
        raise ConfigError(f"{path} = {show(value)}: must be a mapping of names to sections, at least one")
    for name in value:
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"{path}: the name {name!r} must be letters, digits and underscores")
    return {name: _section(spec, entry, join(path, name)) for name, entry in value.items()}


def _mapping(spec: Spec, value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{path} = {show(value)}: must be a mapping of names to values")
    return dict(value)


_CHECKS: dict[str, Callable[[Spec, Any, str], Any]] = {
    "number": checked_number,
    "integer": _integer,
    "text": _text,
    "flag": _flag,
    "vector": _vector,
    "matrix": _matrix,
    "component": _component,
    "section": _section,
    "sections": _sections,
    "mapping": _mapping,
}


def build(cls: type[T], data: Any, path: str = "") -> T:
    """Check ``data`` (a mapping as YAML gives it) strictly and build ``cls`` from it.

    Raises ConfigError for an unknown or missing key, a wrong type, a value out of bounds, nan or inf. A
    ``validate(self, path)`` method of the class may refuse combinations of values.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path or 'the scenario'} = {show(data)}: must be a section (key: value)")
    fields = {field.name: field for field in attrs.fields(cls)}  # type: ignore[arg-type]
    for key in data:
        if key not in fields:
            raise unknown(join(path, key), "key", key, fields)
    values = {}
    for name, field in fields.items():
        spec = spec_of(field)
        if name not in data:
            if spec.default_data is not None:
                values[name] = _CHECKS[spec.kind](spec, spec.default_data, join(path, name))
            if field.default is attrs.NOTHING:
                unit = f" [{spec.unit}]" if spec.unit else ""
                raise ConfigError(f"{join(path, name)}: missing ({spec.doc}{unit})")
            continue
        value = data[name]
        values[name] = (
            None if value is None and spec.optional else _CHECKS[spec.kind](spec, value, join(path, name))
        )
    built = cls(**values)
    validate = getattr(built, "validate", None)
    if validate is not None:
        validate(path)
    return built


def as_data(built: Any) -> Any:
    """The inverse of :func:`build`: plain mappings, lists and numbers, complete with defaults and types."""
    if attrs.has(type(built)):
        kind = getattr(type(built), "type_name", None)
        head = {"type": kind} if kind else {}
        return head | {field.name: as_data(getattr(built, field.name)) for field in attrs.fields(type(built))}
    if isinstance(built, Mapping):
        return {name: as_data(entry) for name, entry in built.items()}
    if isinstance(built, tuple):
        return [as_data(entry) for entry in built]
    return built


def walk(built: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All parameter objects in ``built`` with their paths, outer ones first."""
    if attrs.has(type(built)):
        yield path, built
        for field in attrs.fields(type(built)):
            yield from walk(getattr(built, field.name), join(path, field.name))
    elif isinstance(built, Mapping):
        for name, entry in built.items():
            yield from walk(entry, join(path, name))


@attrs.frozen
class Row:
    """One line of the parameter page."""

    name: str
    kind: str
    unit: str
    bound: str
    default: str
    doc: str


def table(cls: type) -> list[Row]:
    """The parameters of a Params class, one row each, as ``rths params`` prints them."""
    rows = []
    for field in attrs.fields(cls):
        spec = spec_of(field)
        if field.default is attrs.NOTHING:
            default = "required"
        elif isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]
            default = "its defaults" if spec.kind == "section" else "none"
        else:
            default = "-" if field.default is None else str(as_data(field.default))
        if spec.default_data is not None:
            default = str(spec.default_data["type"])
        kind = spec.kind if not spec.family else f"section: {spec.family}"
        rows.append(Row(field.name, kind, spec.unit or "-", spec.bound or "-", default, spec.doc))
    return rows
