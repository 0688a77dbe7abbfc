# SPDX-License-Identifier: Apache-2.0
"""JSON Schema (draft 7) of the files that a Params class declares, for text editors.

The schema includes the types of other packages. Only the loader checks relations between keys.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import Spec, declared, required_names
from rths_nodes.core.validation import LARGEST, LONGEST_NAME, to_data

DRAFT = "http://json-schema.org/draft-07/schema#"
"""Newest draft that yaml-language-server supports completely."""
_BOUNDS = {
    "minimum": "at_least",
    "exclusiveMinimum": "more_than",
    "maximum": "at_most",
    "exclusiveMaximum": "less_than",
}
_TEXTS: Data = {"type": "array", "items": {"type": "string"}}
_NAMES: Data = {"pattern": r"^[^\W\d]\w*$", "maxLength": LONGEST_NAME}


def json_schema(cls: type, title: str) -> Data:
    definitions: Data = {}
    schema = _Schemas(definitions).of_class(cls)
    return {"$schema": DRAFT, "title": title} | schema | {"definitions": definitions}


class _Schemas:
    def __init__(self, definitions: Data) -> None:
        self._definitions = definitions

    def of_class(self, cls: type, kind: str = "") -> Data:
        head: Data = {"type": {"const": kind}} if kind else {}
        return {
            "type": "object",
            "properties": head | {name: self._documented(spec) for name, spec in declared(cls).items()},
            "required": [*head, *required_names(cls)],
            "additionalProperties": False,
        }

    def _documented(self, spec: Spec) -> Data:
        schema = self._schema(spec)
        if (spec.default is None and spec.kind != "flag") or (spec.kind == "section" and not spec.required):
            schema = {"anyOf": [schema, {"type": "null"}]}
        if "$ref" in schema:  # draft 7 ignores all keys next to a reference
            schema = {"allOf": [schema]}
        unit = f" [{spec.unit}]" if spec.unit else ""
        schema = {"description": f"{spec.doc}{unit}"} | schema
        if not spec.required and (default := to_data(spec.left_out)) not in (None, "", [], {}):
            schema["default"] = default
        return schema

    def _schema(self, spec: Spec) -> Data:
        if spec.kind in ("component", "components"):
            schema = self._defined(spec.family, partial(self._family, spec.family))
        elif spec.kind in ("section", "sections"):
            assert spec.cls is not None
            schema = self._defined(
                f"{spec.cls.__module__}.{spec.cls.__qualname__}", partial(self.of_class, spec.cls)
            )
        else:
            return _plain(spec)
        if spec.kind in ("component", "section"):
            return schema
        least = {"minProperties": 1} if spec.required else {}
        return {"type": "object", "propertyNames": _NAMES, "additionalProperties": schema} | least

    def _family(self, family: str) -> Data:
        types = [name for name in registry.names(family) if self._is_loaded(family, name)]
        cases = [
            {
                "if": {"properties": {"type": {"const": name}}, "required": ["type"]},
                "then": self._defined(f"{family}.{name}", partial(self._component, family, name)),
            }
            for name in types
        ]
        kind = {"enum": types, "description": f"type of {family}; see rths list {family}"}
        return {"type": "object", "properties": {"type": kind}, "required": ["type"], "allOf": cases}

    @staticmethod
    def _is_loaded(family: str, name: str) -> bool:
        try:
            registry.load(family, name)
        except ConfigError:
            return False
        return True

    def _component(self, family: str, name: str) -> Data:
        described = {"description": registry.description(family, name)}
        return described | self.of_class(registry.load(family, name).Params, name)

    def _defined(self, name: str, make: Callable[[], Data]) -> Data:
        if name not in self._definitions:
            self._definitions[name] = {}
            self._definitions[name] = make()
        return {"$ref": f"#/definitions/{name}"}


def _plain(spec: Spec) -> Data:
    bounds = {key: bound for key, name in _BOUNDS.items() if (bound := getattr(spec, name)) is not None}
    number = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST} | bounds
    numbers = {"type": "array", "items": number, "minItems": 1}
    text: Data = {"type": "string"} | ({"enum": list(spec.choices)} if spec.choices else {})
    schemas: Data = {
        "number": number,
        "integer": {"type": "integer"} | bounds,
        "text": text,
        "path": {"anyOf": [text, {"type": "object"}]} if spec.columns else text,
        "texts": _TEXTS | {"items": text},
        "flag": {"type": "boolean"},
        "vector": numbers,
        "matrix": {"anyOf": [{"type": "string"}, {"type": "array", "items": numbers, "minItems": 1}]},
        "mapping": {"type": "object"},
    }
    schema: Data = schemas[spec.kind]
    return schema
