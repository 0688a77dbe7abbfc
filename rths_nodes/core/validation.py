# SPDX-License-Identifier: Apache-2.0
"""Strict conversion of plain data, as from YAML, to declared parameters, and back.

Invalid input raises :class:`ConfigError` with path, value, unit, bound and known names.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import attrs

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems, join, show, unknown
from rths_nodes.core.parameters import Spec, declared, type_of
from rths_nodes.core.text_files import read_rows, stored_columns

T = TypeVar("T")
LEAVES = int, float, str, type(None)

LARGE_FILES = (".mtx", ".mtx.gz", ".npz")
TAKEN_IN = 64

LONGEST_NAME = 64
"""Largest length of a section's name, characters. Topics and namespaces (at most 255) contain this name."""
COMPARED = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}
SMALLEST, LARGEST = 1e-50, 1e50
"""Bounds of a non-zero magnitude in SI units. Squares and quotients of such numbers cannot overflow."""


def checked_number(spec: Spec, value: object, path: str) -> float:
    unit = "" if spec.unit == "1" else spec.unit
    wanted = f"a number{' in ' + unit if unit else ''}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{path} = {show(value)}: must be {wanted}")
    try:
        result = float(value)
    except OverflowError:  # an integer of hundreds of digits
        result = math.inf
    if not math.isfinite(result):
        raise ConfigError(f"{path} = {show(value)}: must be a finite number{' in ' + unit if unit else ''}")
    if result and spec.kind != "integer" and not SMALLEST <= abs(result) <= LARGEST:
        raise ConfigError(
            f"{path} = {show(value)}: must be 0 or have a magnitude between {SMALLEST:g} and {LARGEST:g}"
        )
    if not all(COMPARED[sign](result, bound) for sign, bound in spec.bounds.items()):
        raise ConfigError(f"{path} = {show(result, unit)}: must be {spec.bound}{' ' + unit if unit else ''}")
    return result


def _integer(spec: Spec, value: Any, path: str) -> int:
    integral = value.is_integer() if isinstance(value, float) else isinstance(value, int)
    if isinstance(value, bool) or not integral:
        raise ConfigError(
            f"{path} = {show(value)}: must be a whole number{' of ' + spec.unit if spec.unit else ''}"
        )
    checked_number(spec, value, path)
    return int(value)


def _text(spec: Spec, value: object, path: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{path} = {show(value)}: must be text")
    if spec.choices and value not in spec.choices:
        raise unknown(path, "value", value, spec.choices)
    return value


def _path(spec: Spec, value: object, path: str) -> str:
    if not (spec.columns and isinstance(value, Mapping)):
        return _text(spec, value, path)
    try:
        return stored_columns(value)
    except ValueError as error:
        raise ConfigError(f"{path}{error}") from None


def _texts(spec: Spec, value: object, path: str) -> tuple[str, ...]:
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable):
        raise ConfigError(f"{path} = {show(value)}: must be a list of strings")
    return tuple(_text(spec, entry, path) for entry in value)


def _flag(spec: Spec, value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{path} = {show(value)}: must be true or false")
    return value


def _vector(spec: Spec, value: object, path: str) -> tuple[float, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        unit = "" if spec.unit in ("", "1") else f" in {spec.unit}"
        raise ConfigError(f"{path} = {show(value)}: must be a list of numbers{unit}")
    return tuple(checked_number(spec, entry, f"{path}[{index}]") for index, entry in enumerate(value))


def _matrix(spec: Spec, value: object, path: str) -> tuple[tuple[float, ...], ...] | str:
    if isinstance(value, str):
        if spec.large and value.endswith(LARGE_FILES):
            return value
        try:
            file, value = value, read_rows(value)
            if spec.large and len(value) > TAKEN_IN:
                return file
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} = {show(value)}: cannot be read as a table of numbers ({error})") from None
    kinds = "CSV, mtx or npz" if spec.large else "CSV"
    if not isinstance(value, (list, tuple)) or not value:
        raise ConfigError(f"{path} = {show(value)}: must be a list of rows, or a {kinds} file")
    if not any(isinstance(row, (list, tuple)) for row in value):
        raise ConfigError(
            f"{path} = {show(value)}: must be a list of rows, e.g. {show([list(value)])}: {spec.doc}"
        )
    rows = tuple(_vector(spec, row, f"{path}[{index}]") for index, row in enumerate(value))
    if len({len(row) for row in rows}) != 1:
        raise ConfigError(
            f"{path}: rows must have equal length, but have ({', '.join(str(len(row)) for row in rows)}) numbers"
        )
    return rows


def _component(spec: Spec, value: object, path: str) -> object:
    from rths_nodes.core import registry

    if attrs.has(type(value)):
        return value
    choices = registry.names(spec.family)
    if registry.is_component(value):
        value = {"type": value}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path} = {show(value)}: must be a section with one of the types {', '.join(choices)}")
    if "type" not in value:
        raise ConfigError(f"{path}.type: missing; known: {', '.join(choices)}")
    cls = registry.load(spec.family, value["type"], join(path, "type"))
    return from_data(cls.Params, {key: entry for key, entry in value.items() if key != "type"}, path)


def _section(spec: Spec, value: object, path: str) -> object:
    assert spec.cls is not None
    return value if isinstance(value, spec.cls) else from_data(spec.cls, {} if value is None else value, path)


def _sections(spec: Spec, value: object, path: str) -> dict[str, object]:
    if not isinstance(value, Mapping) or (spec.required and not value):
        least = ", at least one" if spec.required else "; omit it if there are none"
        with_type = " with a type" if spec.family else ""
        raise ConfigError(f"{path} = {show(value)}: must be a mapping of names to sections{with_type}{least}")
    for name in value:
        if not isinstance(name, str) or not name.isidentifier():
            raise ConfigError(f"{path}: the name {show(name)} must consist of letters, digits and underscores")
        if len(name) > LONGEST_NAME:
            raise ConfigError(
                f"{path}: the name {show(name)} has {len(name)} characters: must be <= {LONGEST_NAME}"
            )
    check, built, problems = _component if spec.family else _section, {}, Problems()
    for name, entry in value.items():
        with problems.gathered():
            built[name] = check(spec, entry, join(path, name))
    problems.refuse()
    return built


def _mapping(spec: Spec, value: object, path: str) -> dict[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"{path} = {show(value)}: must be a mapping of names to values")
    return dict(value)


_CHECKS: dict[str, Callable[[Spec, object, str], object]] = {
    "number": checked_number,
    "integer": _integer,
    "text": _text,
    "path": _path,
    "texts": _texts,
    "flag": _flag,
    "vector": _vector,
    "matrix": _matrix,
    "component": _component,
    "components": _sections,
    "section": _section,
    "sections": _sections,
    "mapping": _mapping,
}


def from_data(cls: type[T], data: object, path: str = "") -> T:
    """Check ``data`` (a mapping as from YAML) strictly and build ``cls`` from it.

    Raises one ConfigError for all unknown and missing keys, wrong types, values out of bounds, NaN and inf.
    """
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path or 'the scenario'} = {show(data)}: must be a section (key: value)")
    specs, problems, values = declared(cls), Problems(), {}
    for key in data:
        if key not in specs:
            problems += unknown(join(path, key), "key", key, specs).problems
    for name, spec in specs.items():
        location = join(path, name)
        with problems.gathered():
            if name in data or isinstance(spec.default, Mapping):
                values[name] = _checked(spec, data.get(name, spec.default), location)
            elif spec.required:
                raise ConfigError(f"{location}: missing ({spec.doc}{f' [{spec.unit}]' if spec.unit else ''})")
    problems.refuse()
    built: Any = cls(**values)
    built.validate(path)
    return built  # type: ignore[no-any-return]


def _checked(spec: Spec, value: object, path: str) -> object:
    absent = value is None and spec.default is None and spec.kind != "flag"  # null is not a flag
    return None if absent else _CHECKS[spec.kind](spec, value, path)


def is_section(there: object) -> bool:
    return there is None or isinstance(there, Mapping) or attrs.has(type(there))


def opened(built: Any) -> Data:
    """Return a section (data, a built object or None) as a mapping that :func:`from_data` accepts."""
    if not attrs.has(type(built)):
        return dict(built or {})
    kind = type_of(built)
    head = {"type": kind} if kind else {}
    return head | {name: getattr(built, name) for name in declared(type(built))}


def to_data(built: object) -> Any:
    """Invert :func:`from_data`: return plain mappings, lists and numbers, complete with defaults and types."""
    if isinstance(built, tuple):
        return [to_data(entry) for entry in built]
    if isinstance(built, LEAVES):
        return built
    if isinstance(built, Mapping) or attrs.has(type(built)):
        return {name: to_data(entry) for name, entry in opened(built).items()}
    return built


def walk(built: object, path: str = "") -> Iterator[tuple[str, Any]]:
    return ((key, part) for key, part, _ in walk_declared(built, path))


def walk_declared(
    built: object, path: str = "", on_the_way: tuple[Spec, ...] = ()
) -> Iterator[tuple[str, Any, tuple[Spec, ...]]]:
    if attrs.has(type(built)):
        yield path, built, on_the_way
        for name, spec in declared(type(built)).items():
            entry = getattr(built, name)
            if not isinstance(entry, LEAVES):
                yield from walk_declared(entry, join(path, name), (*on_the_way, spec))
    elif isinstance(built, Mapping):
        for name, entry in built.items():
            yield from walk_declared(entry, join(path, name), on_the_way)
