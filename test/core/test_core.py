# SPDX-License-Identifier: Apache-2.0
"""Tests of ``rths_nodes.core``: public names, registry, default declarations, stored results."""

from __future__ import annotations

import ast
import importlib
import math
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
from messages import mentions, naming

from rths_nodes import core
from rths_nodes.core import parameters, params, protocols, registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import recorded
from rths_nodes.core.samples import Array, Recent
from rths_nodes.numerical.ground_motions.record import Record

IMPORTS = {
    alias.name: node.module
    for node in ast.walk(ast.parse(Path(core.__file__).read_text()))
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("rths_nodes.core.")
    for alias in node.names
}
"""Module of each name, as a type checker sees it."""


def test_public_names_are_visible_to_type_checkers() -> None:
    assert sorted(IMPORTS) == sorted(core.__all__)


@pytest.mark.parametrize("name", core.__all__)
def test_public_name_refers_to_its_module(name: str) -> None:
    assert getattr(core, name) is getattr(importlib.import_module(str(IMPORTS[name])), name)


def test_submodules_hide_no_public_name() -> None:
    """An imported submodule becomes an attribute of the package, before any lazy name."""
    assert not {path.stem for path in Path(core.__file__).parent.iterdir()} & set(core.__all__)


def test_unknown_attribute_is_refused() -> None:
    with pytest.raises(AttributeError, match=naming("attribute", "numbr")):
        core.numbr  # noqa: B018


def test_core_imports_lazily() -> None:
    code = "import sys, rths_nodes.core; print([name for name in ('numpy', 'attrs') if name in sys.modules])"
    folder = Path(core.__file__).parents[2]
    assert subprocess.check_output([sys.executable, "-c", code], cwd=folder, text=True).strip() == "[]"


@pytest.fixture
def plug_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Registers a compensator as an installed package: ``plug_in(name, "module:Class")``."""

    def plug_in(name: str, value: str) -> None:
        points = EntryPoints([EntryPoint(name, value, "rths_nodes.compensator")])
        monkeypatch.setattr(registry, "_entry_points", lambda: points)
        registry._table.cache_clear()
        registry._load.cache_clear()

    yield plug_in
    monkeypatch.undo()
    registry._table.cache_clear()
    registry._load.cache_clear()


def test_registry_names_are_sorted_and_loadable() -> None:
    assert registry.names("ramp") == ["hermite", "linear", "predictor_corrector", "quadratic"]
    ramp = registry.load("ramp", "quadratic")
    assert ramp.__name__ == "QuadraticRamp"
    assert registry.class_of("ramp", ramp.Params()) is ramp


def test_unknown_component_lists_known_names() -> None:
    with pytest.raises(ConfigError) as caught:
        registry.load("compensator", "adaptive_invers", "compensator.type")
    names = ", ".join(registry.names("compensator"))
    message = str(caught.value)
    assert mentions(message, "compensator.type", "unknown", "adaptive_invers", "adaptive_inverse", names)


def test_unknown_family_lists_known_families() -> None:
    with pytest.raises(ConfigError, match=naming("unknown", "ramps", "actuator", "compensator")):
        registry.names("ramps")


def test_plug_in_adds_component(plug_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice:
        @params
        class Params:
            """No parameters."""

    monkeypatch.setitem(sys.modules, "some_laboratory", SimpleNamespace(Twice=Twice))
    plug_in("twice", "some_laboratory:Twice")
    assert "twice" in registry.names("compensator")
    assert registry.load("compensator", "twice") is Twice


def test_duplicate_component_name_is_refused(plug_in: Any) -> None:
    plug_in("inverse", "some_laboratory:Inverse")
    with pytest.raises(ConfigError, match=naming("inverse", "twice", "some_laboratory")):
        registry.names("compensator")


@pytest.mark.parametrize("value", ["no_such_laboratory:Twice", "rths_nodes.control.ramps:Twice"])
def test_plug_in_that_fails_to_load_is_named(plug_in: Any, value: str) -> None:
    plug_in("broken", value)
    with pytest.raises(ConfigError, match=naming("broken", value)):
        registry.load("compensator", "broken")


def test_port_declarations_are_completed() -> None:
    port = SimpleNamespace(external=True, Params=SimpleNamespace(one_node=True, watchdog=0.5))
    parameters.complete("port", port)
    assert (port.external, port.SOURCES) == (True, ())
    assert (port.Params.one_node, port.Params.watchdog, port.Params.builds_axes) == (True, 0.5, False)


@pytest.mark.parametrize("family", registry.FAMILIES)
def test_component_has_declarations_of_its_family(family: str) -> None:
    bases = parameters.of_params(family).__mro__
    required = {key for base in bases for key in vars(base) if not key.startswith("_")}
    for name in registry.names(family):
        component = registry.load(family, name)
        assert isinstance(component.external, (bool, property)), name
        assert isinstance(component.SOURCES, tuple), name
        names = {*dir(component.Params), *(field.name for field in attrs.fields(component.Params))}
        assert required <= names, name
        assert component.Params.cannot_be_built == "", name


@pytest.mark.parametrize("drops", [True, False])
def test_port_with_drop_heartbeat_drops_heartbeat(drops: bool) -> None:
    """The default of :class:`OfPort` drops nothing."""
    members = {"drop_heartbeat": lambda self: None} if drops else {}
    for bases in ((), (protocols.OfPort,)):
        port: Any = type("Mine", bases, members | {"Params": type("Params", (), {})})
        parameters.complete("port", port)
        assert port.Params.has_heartbeat is None
        assert protocols.drops_heartbeat(port) is drops


def test_declarations_of_plug_in_are_completed() -> None:
    integrator = SimpleNamespace(Params=SimpleNamespace(ground="a_g", observes=True))
    parameters.complete("integrator", integrator)
    params = integrator.Params
    assert (params.ground, params.observes, params.who, params.experimental_stiffness) == ("a_g", True, "", None)
    compensator = SimpleNamespace(Params=SimpleNamespace())
    parameters.complete("compensator", compensator)
    assert (compensator.transport_in_lead, compensator.external, compensator.Params.known) == (False, False, None)


def test_recorded_component_has_default_declarations() -> None:
    port = recorded("port", "of_another", {"watchdog": 2.0}, "is not installed here")
    assert (port.watchdog, port.builds_axes, port.has_heartbeat) == (2.0, False, False)
    assert (port.transport_samples, port.longest_wait) == (0, math.inf)
    assert mentions(port.cannot_be_built, "installed")
    integrator = recorded("integrator", "of_another", {"who": "he"}, "is gone")
    assert (integrator.who, integrator.observes, integrator.ground) == ("he", True, None)
    without_family = recorded("specimen", "of_another", {}, "is not installed here")
    assert not hasattr(without_family, "builds_axes")


def test_equal_inputs_are_computed_once() -> None:
    recent, computed = Recent(2), []

    def square(*inputs: float) -> Array:
        def compute() -> Array:
            computed.append(inputs)
            return np.square(inputs)

        return recent.result((np.array(inputs),), compute)

    first = square(1.0, 2.0)
    assert square(1.0, 2.0) is first
    assert square(3.0).tolist() == [9.0]
    assert square(1.0, 2.0) is first
    assert square(4.0).tolist() == [16.0]
    assert square(1.0, 2.0).tolist() == first.tolist()
    assert computed == [(1.0, 2.0), (3.0,), (4.0,), (1.0, 2.0)]
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 0.0


def test_samples_of_record_belong_to_caller() -> None:
    times = np.arange(0.0, 2.0, 0.001)
    first = Record(Record.Params(record="elcentro_1940_ns"), 1).sample(times)
    expected = first.tolist()
    first[:] = 0.0
    times_before, times[:] = times.copy(), 0.0
    assert Record(Record.Params(record="elcentro_1940_ns"), 1).sample(times_before).tolist() == expected
    twice = Record(Record.Params(record="elcentro_1940_ns", scale=2.0), 1)
    later = Record(Record.Params(record="elcentro_1940_ns", begin=0.5), 1)
    assert twice.sample(times_before).tolist() == [2.0 * value for value in expected]
    assert later.sample(times_before[:1500]).tolist() == pytest.approx(expected[500:], abs=1e-12)
