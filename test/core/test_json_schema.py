# SPDX-License-Identifier: Apache-2.0
"""JSON Schema of scenarios and rig files: shipped files pass, single mistakes do not."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from rths_nodes.app.cli import main
from rths_nodes.app.commands.schema import KINDS
from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.json_schema import json_schema
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
    path = files.shipped(FILES[kind])[name]
    data = parse(path.read_text(encoding="utf-8"), name)
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize(("kind", "name"), SHIPPED)
def test_every_shipped_file_is_accepted(kind: str, name: str, validators: dict[str, Any]) -> None:
    assert [error.message for error in validators[kind].iter_errors(data_of(kind, name))] == []


def places(data: Data, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Keys that the schema knows, as paths; cases and scatter have keys of the user."""
    for key, value in data.items():
        yield (*path, key)
        if isinstance(value, dict) and key not in ("cases", "scatter"):
            yield from places(value, (*path, key))


def misspelt(section: Data, key: str) -> None:
    section[f"{key}_x"] = section.pop(key)


def replaced(value: object) -> Callable[[Data, str], None]:
    return lambda section, key: section.__setitem__(key, value)


CHANGES = {
    "misspelt": misspelt,
    "negative": replaced(-1.0),
    "too large": replaced(1e300),
    "flag": replaced(True),
    "no list": replaced([]),
}


def is_own_name(path: tuple[str, ...]) -> bool:
    """Names of axes, stories and parameters are the user's: which must agree is judged by the loader alone."""
    return any(part in ("axes", "restoring_forces", "parameters") for part in path[-2:-1])


def mutations() -> list[tuple[str, str, tuple[str, ...], str]]:
    rows = []
    for kind, name in SHIPPED:
        data = data_of(kind, name)
        rows += [
            (kind, name, path, change)
            for path in places(data)
            for change in CHANGES
            if not (change == "misspelt" and is_own_name(path))
            and not (change == "no list" and path == ("updating", "of"))  # the law of the copies wants one
        ]
    random.Random(66).shuffle(rows)
    return rows


def test_single_mistakes_that_the_loader_rejects_are_rejected(validators: dict[str, Any]) -> None:
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


def test_a_parameter_has_meaning_unit_bound_and_default() -> None:
    schema = json_schema(KINDS["scenario"], "scenario")
    rate = schema["properties"]["servo_rate"]
    assert (rate["exclusiveMinimum"], rate["maximum"]) == (0.0, 100e3)
    assert rate["description"].endswith("[Hz]")
    assert schema["properties"]["time_ratio"]["default"] == 1.0
    assert "substeps" in schema["required"]
    assert schema["definitions"]["actuator"]["properties"]["type"]["enum"] == registry.names("actuator")
    inverse = schema["definitions"]["compensator.inverse"]
    assert inverse["description"] == registry.description("compensator", "inverse")


def test_the_schema_is_printed_or_written(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "rig"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json_schema(KINDS["rig_file"], "rths_nodes rig file")
    assert main(["schema", "scenario", "--out", str(tmp_path / "scenario.schema.json")]) == 0
    assert json.loads((tmp_path / "scenario.schema.json").read_text())["required"][0] == "version"
