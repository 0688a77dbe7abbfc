# SPDX-License-Identifier: Apache-2.0
"""Declared parameters as rows of a table, and as JSON Schema (draft 7) for text editors.

The schema includes component types of other packages. It omits relations between keys, which the loader checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.parameters import Spec, declared, required_names
from rths_nodes.core.validation import LARGEST, LONGEST_NAME, to_data

DRAFT = "http://json-schema.org/draft-07/schema#"
"""Newest draft that yaml-language-server supports completely."""
_BOUNDS = {">=": "minimum", ">": "exclusiveMinimum", "<=": "maximum", "<": "exclusiveMaximum"}
_NAMES: Data = {"pattern": r"^[^\W\d]\w*$", "maxLength": LONGEST_NAME}

ANY = "NAME"


@attrs.frozen
class Row:
    name: str
    kind: str
    unit: str
    bound: str
    default: str
    doc: str


def table(cls: type) -> list[Row]:
    rows = []
    for name, spec in declared(cls).items():
        if spec.required:
            default = "required"
        elif isinstance(spec.default, attrs.Factory):  # type: ignore[arg-type]
            default = "its defaults" if spec.kind == "section" else "none"
        elif isinstance(spec.default, Mapping):
            default = str(spec.default["type"])
        else:
            default = "-" if spec.default is None else str(to_data(spec.default))
        kind = spec.kind if not spec.family else f"section: {spec.family}"
        rows.append(Row(name, kind, spec.unit or "-", spec.bound or "-", default, spec.doc))
    return rows


def sections(cls: type, path: str = "") -> Iterator[tuple[str, type]]:
    """Yield the path (``axes.NAME.limits``) and class of each section of ``cls`` that has no ``type``."""
    for name, spec in declared(cls).items():
        if spec.cls is not None:
            section = join(path, name) + (f".{ANY}" if spec.kind == "sections" else "")
            yield section, spec.cls
            yield from sections(spec.cls, section)


def json_schema(cls: type, title: str) -> Data:
    definitions: Data = {}
    schema = _of_class(definitions, cls)
    return {"$schema": DRAFT, "title": title} | schema | {"definitions": definitions}


def _of_class(definitions: Data, cls: type, kind: str = "") -> Data:
    head: Data = {"type": {"const": kind}} if kind else {}
    properties = {name: _documented(definitions, spec) for name, spec in declared(cls).items()}
    return {
        "type": "object",
        "properties": head | properties,
        "required": [*head, *required_names(cls)],
        "additionalProperties": False,
    }


def _documented(definitions: Data, spec: Spec) -> Data:
    schema = _schema(definitions, spec)
    if (spec.default is None and spec.kind != "flag") or (spec.kind == "section" and not spec.required):
        schema = {"anyOf": [schema, {"type": "null"}]}
    if "$ref" in schema:  # draft 7 ignores all keys next to a reference
        schema = {"allOf": [schema]}
    unit = f" [{spec.unit}]" if spec.unit else ""
    schema = {"description": f"{spec.doc}{unit}"} | schema
    if not spec.required and (default := to_data(spec.left_out)) not in (None, "", [], {}):
        schema["default"] = default
    return schema


def _schema(definitions: Data, spec: Spec) -> Data:
    if spec.family:
        schema = _defined(definitions, spec.family, _family, spec.family)
    elif spec.cls is not None:
        name = f"{spec.cls.__module__}.{spec.cls.__qualname__}"
        schema = _defined(definitions, name, _of_class, spec.cls)
    else:
        return _plain(spec)
    if spec.kind in ("component", "section"):
        return schema
    least = {"minProperties": 1} if spec.required else {}
    return {"type": "object", "propertyNames": _NAMES, "additionalProperties": schema} | least


def _family(definitions: Data, family: str) -> Data:
    cases = {}
    for name in registry.names(family):
        try:
            cls = registry.load(family, name).Params
        except ConfigError:
            continue
        cases[name] = {
            "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
            "then": _defined(definitions, f"{family}.{name}", _component, family, name, cls),
        }
    kind = {"enum": [*cases], "description": f"type of {family}; see rths list {family}"}
    return {
        "type": "object",
        "properties": {"type": kind},
        "required": ["type"],
        "allOf": [*cases.values()],
    }


def _component(definitions: Data, family: str, name: str, cls: type) -> Data:
    return {"description": registry.description(family, name)} | _of_class(definitions, cls, name)


def _defined(definitions: Data, name: str, make: Callable[..., Data], *arguments: object) -> Data:
    if name not in definitions:
        definitions[name] = {}  # ends the recursion of a section that contains itself
        definitions[name] = make(definitions, *arguments)
    return {"$ref": f"#/definitions/{name}"}


def _plain(spec: Spec) -> Data:
    bounds = {_BOUNDS[sign]: bound for sign, bound in spec.bounds.items()}
    number = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST} | bounds
    numbers = {"type": "array", "items": number, "minItems": 1}
    text: Data = {"type": "string"} | ({"enum": list(spec.choices)} if spec.choices else {})
    schemas: Data = {
        "number": number,
        "integer": {"type": "integer"} | bounds,
        "text": text,
        "path": {"anyOf": [text, {"type": "object"}]} if spec.columns else text,
        "texts": {"type": "array", "items": text},
        "flag": {"type": "boolean"},
        "vector": numbers,
        "matrix": {"anyOf": [{"type": "string"}, {"type": "array", "items": numbers, "minItems": 1}]},
        "mapping": {"type": "object"},
    }
    schema: Data = schemas[spec.kind]
    return schema
