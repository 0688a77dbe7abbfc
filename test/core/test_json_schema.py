# SPDX-License-Identifier: Apache-2.0
"""Tests of the JSON Schema of scenarios and rig files against the loader."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from rths_nodes.app.cli import main
from rths_nodes.app.commands.lookup import KINDS
from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameter_docs import json_schema
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import parse
from rths_nodes.loop.scenario import files

jsonschema = pytest.importorskip("jsonschema")

FILES = {"scenario": files.SCENARIO, "rig_file": files.RIG}
SHIPPED = [(kind, name) for kind, folder in FILES.items() for name in files.shipped(folder)]
MUTATIONS = 200


@pytest.fixture(scope="module")
def validators() -> dict[str, Any]:
    schemas = {kind: json_schema(cls, kind) for kind, cls in KINDS.items()}
    return {kind: jsonschema.Draft7Validator(schema) for kind, schema in schemas.items()}


@cache
def data_of(kind: str, name: str) -> Data:
    data = parse(files.shipped(FILES[kind])[name].read_text(encoding="utf-8"), name)
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize(("kind", "name"), SHIPPED)
def test_shipped_file_is_accepted(kind: str, name: str, validators: dict[str, Any]) -> None:
    assert [error.message for error in validators[kind].iter_errors(data_of(kind, name))] == []


def paths(data: Data, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of keys that the schema defines; the keys below cases and scatter are the user's."""
    for key, value in data.items():
        yield (*path, key)
        if isinstance(value, dict) and key not in ("cases", "scatter"):
            yield from paths(value, (*path, key))


def replaced(value: object) -> Callable[[Data, str], None]:
    return lambda section, key: section.__setitem__(key, value)


CHANGES = {
    "misspelt": lambda section, key: section.__setitem__(f"{key}_x", section.pop(key)),
    "negative": replaced(-1.0),
    "too large": replaced(1e300),
    "flag": replaced(True),
    "no list": replaced([]),
}


def mutations() -> list[tuple[str, str, tuple[str, ...], str]]:
    rows = []
    for kind, name in SHIPPED:
        rows += [
            (kind, name, path, change)
            for path in paths(data_of(kind, name))
            for change in CHANGES
            # names of axes, stories and parameters are the user's: only the loader compares them
            if not (change == "misspelt" and path[-2:-1] in (("axes",), ("restoring_forces",), ("parameters",)))
            and not (change == "no list" and path == ("updating", "of"))  # the law of the copies needs a list
        ]
    random.Random(66).shuffle(rows)
    return rows


def test_mistakes_rejected_by_loader_are_rejected(validators: dict[str, Any]) -> None:
    rejected = accepted = 0
    for kind, name, path, change in mutations():
        if rejected == MUTATIONS:
            break
        data = section = deepcopy(data_of(kind, name))
        for key in path[:-1]:
            section = section[key]
        CHANGES[change](section, path[-1])
        try:
            from_data(KINDS[kind], data)
        except ConfigError:
            assert not validators[kind].is_valid(data), (name, path, change)
            rejected += 1
        else:
            accepted += 1
    assert rejected == MUTATIONS
    assert accepted < MUTATIONS / 10


def test_parameter_has_description_unit_bound_and_default() -> None:
    schema = json_schema(KINDS["scenario"], "scenario")
    rate = schema["properties"]["servo_rate"]
    assert (rate["exclusiveMinimum"], rate["maximum"]) == (0.0, 100e3)
    assert rate["description"].endswith("[Hz]")
    assert schema["properties"]["time_ratio"]["default"] == 1.0
    assert "substeps" in schema["required"]
    assert schema["definitions"]["actuator"]["properties"]["type"]["enum"] == registry.names("actuator")
    inverse = schema["definitions"]["compensator.inverse"]
    assert inverse["description"] == registry.description("compensator", "inverse")


def test_schema_is_printed_or_written(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "rig"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema(KINDS["rig_file"], "rths_nodes rig file")
    assert main(["schema", "scenario", "--out", str(tmp_path / "scenario.schema.json")]) == 0
    assert json.loads((tmp_path / "scenario.schema.json").read_text())["required"][0] == "version"
