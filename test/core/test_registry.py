# SPDX-License-Identifier: Apache-2.0
"""The registry: families, plug-ins from other packages, names that nobody knows."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest
from messages import mentions, naming

from rths_nodes.core import params, registry
from rths_nodes.core.errors import ConfigError


@pytest.fixture
def plug_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Registers a compensator as another package would: ``plug_in(name, "module:Class")``."""

    def plug_in(name: str, value: str) -> None:
        group = "rths_nodes.compensator"
        points = EntryPoints([EntryPoint(name, value, group)])
        monkeypatch.setattr(registry, "_entry_points", lambda: points)
        registry._table.cache_clear()
        registry._load.cache_clear()

    yield plug_in
    monkeypatch.undo()
    registry._table.cache_clear()
    registry._load.cache_clear()


class Twice:
    """Sends twice the target."""

    @params
    class Params:
        """No parameters."""


def test_names_are_sorted_and_load() -> None:
    assert registry.names("ramp") == ["hermite", "linear", "predictor_corrector", "quadratic"]
    loaded = registry.load("ramp", "quadratic")
    assert loaded.__name__ == "QuadraticRamp"
    assert registry.class_of("ramp", loaded.Params()) is loaded


def test_an_unknown_name_lists_the_known_and_guesses() -> None:
    with pytest.raises(ConfigError) as caught:
        registry.load("compensator", "adaptive_invers", "compensator.type")
    assert mentions(
        str(caught.value),
        "compensator.type",
        "unknown",
        "adaptive_invers",
        "adaptive_inverse",
        ", ".join(registry.names("compensator")),
    )


def test_an_unknown_family_lists_the_known() -> None:
    with pytest.raises(ConfigError, match=naming("unknown", "ramps", "actuator", "compensator")):
        registry.names("ramps")


def test_another_package_adds_a_component(plug_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("some_laboratory")
    module.Twice = Twice  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_laboratory", module)
    plug_in("twice", "some_laboratory:Twice")
    assert "twice" in registry.names("compensator")
    assert registry.load("compensator", "twice") is Twice


def test_a_name_that_stands_twice_is_refused(plug_in: Any) -> None:
    plug_in("inverse", "some_laboratory:Inverse")
    with pytest.raises(ConfigError, match=naming("inverse", "twice", "some_laboratory")):
        registry.names("compensator")


@pytest.mark.parametrize("value", ["no_such_laboratory:Twice", "rths_nodes.control.ramps:Twice"])
def test_a_plug_in_that_cannot_be_loaded_is_named(plug_in: Any, value: str) -> None:
    plug_in("broken", value)
    with pytest.raises(ConfigError, match=naming("broken", value)):
        registry.load("compensator", "broken")
