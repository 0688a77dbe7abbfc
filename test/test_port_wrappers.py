# SPDX-License-Identifier: Apache-2.0
"""Tests of port wrappers: each forwards every member that it does not define itself, and no default hides one."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path
from typing import Any

import pytest
from loop_parts import Bare
from messages import naming

import rths_nodes
from rths_nodes.core.errors import PortError
from rths_nodes.core.protocols import OfPort, Port, Readback
from rths_nodes.laboratory.ports.wrappers import NamedPort, PortBefore

for room in ("laboratory.ports", "loop", "procedure", "procedure.commissioning", "app.commands"):
    for module in pkgutil.iter_modules(importlib.import_module(f"rths_nodes.{room}").__path__):
        importlib.import_module(f"rths_nodes.{room}.{module.name}")


def stated(protocol: type) -> set[str]:
    """Names of the members that a protocol itself states."""
    return {name for name in (*vars(protocol), *inspect.get_annotations(protocol)) if not name.startswith("_")}


REQUIRED, OPTIONAL = stated(Port), stated(OfPort) | stated(Readback)
MEMBERS = REQUIRED | OPTIONAL
DEFINED = {
    "CalibratedPort": {"active_command", "control_mode"},
    "ForceLoopPort": {"control_mode"},
    "LoadedAxesPort": {"control_mode"},
    "NamedPort": {"label"},
    "NeverOpened": {"armed"},
    "RungPort": {"armed", "counter_at_start", "handover", "paced"},
    "UnsentPort": {"armed", "counter_at_start", "handover", "paced"},
}
"""Wrapper -> optional members that it defines itself. A wrapper that holds a test has armed it."""


def subclasses(cls: type) -> list[type]:
    return [entry for sub in cls.__subclasses__() for entry in (sub, *subclasses(sub))]


WRAPPERS = [cls for cls in subclasses(PortBefore) if cls.__module__.startswith("rths_nodes.")]


def defined(cls: type) -> set[str]:
    """Members that precede those of PortBefore: of the classes of ``cls``, or set on its instances."""
    names: set[str] = set()
    for base in cls.__mro__[: cls.__mro__.index(PortBefore)]:
        names.update(vars(base))
        for node in ast.walk(ast.parse(inspect.cleandoc(f"\n{inspect.getsource(base)}"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names |= {node.attr} if isinstance(node.value, ast.Name) and node.value.id == "self" else set()
    return names & MEMBERS


def test_all_wrappers_are_tested() -> None:
    names = {cls.__name__ for cls in WRAPPERS}
    assert names >= {"CalibratedPort", "CorrectedPort", "ForceLoopPort", "FaultyPort", "NeverOpened"}
    assert names >= {"RungPort", "UnsentPort"}
    assert set(DEFINED) <= names | {"NamedPort"}


@pytest.mark.parametrize("cls", WRAPPERS, ids=[cls.__name__ for cls in WRAPPERS])
def test_wrapper_forwards_members_that_it_does_not_define(cls: Any) -> None:
    wrapper, port = object.__new__(cls), type("Everything", (), {name: object() for name in MEMBERS})()
    wrapper._port = port
    assert defined(cls) & OPTIONAL == DEFINED.get(cls.__name__, set())
    for name in sorted(MEMBERS - defined(cls)):
        assert getattr(wrapper, name) is getattr(port, name), name


def test_base_classes_forward_every_member() -> None:
    """Otherwise the default of the protocol would hide the member of the port."""
    assert sorted(MEMBERS - vars(PortBefore).keys()) == []
    assert sorted(MEMBERS - vars(NamedPort).keys()) == ["label"]  # set on each instance


def forwards_everything(cls: ast.ClassDef) -> bool:
    """True if ``cls`` forwards any attribute to ``_port``."""
    return any(
        isinstance(node, ast.FunctionDef) and node.name == "__getattr__" and "'_port'" in ast.dump(node)
        for node in cls.body
    )


def test_no_class_forwards_undeclared_members() -> None:
    """Such a class hides from readers and from mypy which members it forwards."""
    for path in Path(rths_nodes.__file__).parent.rglob("*.py"):
        classes = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ClassDef)]
        assert [cls.name for cls in classes if forwards_everything(cls)] == [], path.name
    example = ast.parse("class A:\n def __getattr__(self, name):\n  return getattr(self._port, name)").body[0]
    assert isinstance(example, ast.ClassDef)
    assert forwards_everything(example)


VALUES: dict[str, Any] = {
    "active_command": [0.5],
    "hydraulics": 2,
    "control_mode": b"\x01",
    "heartbeat": 7,
    "build": "3f",
    "stated": object(),
    "ear": object(),
    "follows_rig": True,
    "in_lockstep": True,
    "address": "10.0.0.1",
    "trigger": object(),
    "can_warn": True,
    "armed": True,
    "paced": True,
    "handover": object(),
    "failure": "it burns",
    "counter_at_start": 5,
}
CALLS: dict[str, tuple[Any, ...]] = {
    "wait": (0.25,),
    "drop_heartbeat": (),
    "numbers": (),
    "accept_any_start": (),
    "warn": (True,),
    "set_interlock": (False,),
    "set_hydraulics": ("low",),
}


class CompletePort(Bare):
    """A port of another package with all optional members."""

    def __init__(self) -> None:
        self.called: list[tuple[Any, ...]] = []
        for name in CALLS:
            setattr(self, name, lambda *arguments, name=name: self.called.append((name, *arguments)))
        vars(self).update(VALUES)


class ForwardingPort(Bare):
    """A port of another package that forwards any other attribute to the wrapped port."""

    def __init__(self) -> None:
        self.inner = CompletePort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize("port", [CompletePort(), ForwardingPort()], ids=["telling", "looking up"])
def test_members_of_external_port_are_forwarded(port: Any) -> None:
    named = PortBefore(NamedPort(port, "mine"))
    assert VALUES.keys() | CALLS.keys() | {"label"} == OPTIONAL
    assert {name: getattr(named, name) for name in VALUES} == VALUES
    for name, arguments in CALLS.items():
        getattr(named, name)(*arguments)
    assert port.called == [(name, *arguments) for name, arguments in CALLS.items()]
    assert named.label == "port.type = 'mine'"


def test_external_port_without_optional_members_has_defaults() -> None:
    named, defaults = PortBefore(NamedPort(Bare(), "bare")), type("Plain", (OfPort, Readback), {})()
    for name in sorted(VALUES.keys() | {"wait"}):
        assert getattr(named, name) == getattr(defaults, name), name
    assert named.numbers() == {}
    named.drop_heartbeat()
    named.accept_any_start()
    for act, argument in (("set_interlock", False), ("set_hydraulics", "low")):
        with pytest.raises(Exception, match=naming("switched", "software")):
            getattr(named, act)(argument)


def test_port_that_calls_exit_fails_with_its_name() -> None:
    """Otherwise the test would end with the exit code of the port, without a safe stop."""
    port = Bare()
    port.read = lambda: sys.exit(0)  # type: ignore[method-assign,assignment]
    with pytest.raises(PortError, match=naming("bare", "Measurement", "SystemExit: 0")):
        NamedPort(port, "bare").read()
