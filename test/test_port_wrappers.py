# SPDX-License-Identifier: Apache-2.0
"""Wrappers of ports: each hands on every member that it does not have of its own; no default stands before it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from bare_port import Bare
from messages import naming

import rths_nodes
from rths_nodes.core.declarations import OfPort
from rths_nodes.core.port_readings import Readback
from rths_nodes.core.protocols import Port
from rths_nodes.laboratory.ports.wrappers import NamedPort, PortBefore

for room in ("laboratory.ports", "loop.faults", "procedure", "procedure.commissioning", "app.commands"):
    folder = importlib.import_module(f"rths_nodes.{room}").__path__
    for found in pkgutil.iter_modules(folder, f"rths_nodes.{room}."):
        importlib.import_module(found.name)


def stated(protocol: type) -> set[str]:
    """Names of the members that a protocol states itself."""
    return {name for name in (*vars(protocol), *inspect.get_annotations(protocol)) if not name.startswith("_")}


REQUIRED, OPTIONAL = stated(Port), stated(OfPort) | stated(Readback)
OWN = {
    "CalibratedPort": {"active_command", "control_mode"},
    "ForceLoopPort": {"control_mode"},
    "LoadedAxesPort": {"control_mode"},
    "NamedPort": {"label"},
    "NeverOpened": {"armed"},
    "RungPort": {"armed", "counter_at_start", "handover", "paced"},
    "ComputedForcePort": {"armed", "counter_at_start", "handover", "paced"},
    "UnsentPort": {"armed", "counter_at_start", "handover", "paced"},
}
"""Wrapper -> what it answers itself of what a port may have or leave out: one that holds a test has armed it."""


def below(cls: type) -> list[type]:
    return [each for sub in cls.__subclasses__() for each in (sub, *below(sub))]


WRAPPERS = [cls for cls in below(PortBefore) if cls.__module__.startswith("rths_nodes.")]
every_wrapper = pytest.mark.parametrize("cls", WRAPPERS, ids=[cls.__name__ for cls in WRAPPERS])


def own(cls: type) -> set[str]:
    """Members that ``cls`` has before those of PortBefore: of its classes, or set on its objects."""
    before = cls.__mro__[: cls.__mro__.index(PortBefore)]
    names = {name for each in before for name in vars(each)}
    for each in before:
        for node in ast.walk(ast.parse(inspect.cleandoc(f"\n{inspect.getsource(each)}"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names |= {node.attr} if isinstance(node.value, ast.Name) and node.value.id == "self" else set()
    return names & (REQUIRED | OPTIONAL)


class Everything:
    """An object of which each member is another one."""

    def __init__(self) -> None:
        for name in REQUIRED | OPTIONAL:
            setattr(self, name, object())


def test_the_wrappers_are_found() -> None:
    names = {cls.__name__ for cls in WRAPPERS}
    assert names >= {"CalibratedPort", "CorrectedPort", "ForceLoopPort", "FaultyPort", "NeverOpened", "Watched"}
    assert names >= {"RungPort", "ComputedForcePort", "UnsentPort"}
    assert set(OWN) <= names | {"NamedPort"}


@every_wrapper
def test_it_hands_on_each_member_that_is_not_its_own(cls: Any) -> None:
    wrapper, behind = object.__new__(cls), Everything()
    wrapper._port = behind
    mine = own(cls)
    assert mine & OPTIONAL == OWN.get(cls.__name__, set())
    for name in sorted((REQUIRED | OPTIONAL) - mine):
        assert getattr(wrapper, name) is getattr(behind, name), name


def test_a_member_that_is_new_has_to_be_handed_on() -> None:
    """One that PortBefore left out would be answered by the default of the protocol."""
    assert sorted((REQUIRED | OPTIONAL) - vars(PortBefore).keys()) == []
    assert sorted((REQUIRED | OPTIONAL) - vars(NamedPort).keys()) == ["label"]  # which each of it has


def looks_up(cls: ast.ClassDef) -> bool:
    """True where ``cls`` hands on from ``_port`` whatever it is asked for."""
    return any(
        isinstance(each, ast.FunctionDef) and each.name == "__getattr__" and "'_port'" in ast.dump(each)
        for each in cls.body
    )


def test_no_class_hands_on_what_nobody_has_declared() -> None:
    """Such a class hides from readers, and from mypy, what it hands on."""
    for path in Path(rths_nodes.__file__).parent.rglob("*.py"):
        classes = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ClassDef)]
        assert [cls.name for cls in classes if looks_up(cls)] == [], path.name
    wrong = ast.parse("class A:\n def __getattr__(self, name):\n  return getattr(self._port, name)").body[0]
    assert isinstance(wrong, ast.ClassDef)
    assert looks_up(wrong)


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


class Telling(Bare):
    """A port of another package that has all that a port may have."""

    def __init__(self) -> None:
        self.called: list[tuple[Any, ...]] = []
        for name in CALLS:
            setattr(self, name, lambda *given, name=name: self.called.append((name, *given)))
        for name, value in VALUES.items():
            setattr(self, name, value)


class LookingUp(Bare):
    """A port of another package that wraps one, and looks up all that it has not itself."""

    def __init__(self) -> None:
        self.inner = Telling()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize("port", [Telling(), LookingUp()], ids=["telling", "looking up"])
def test_a_port_of_another_package_is_told_as_it_is(port: Any) -> None:
    named = PortBefore(NamedPort(port, "mine"))
    assert VALUES.keys() | CALLS.keys() | {"label"} == OPTIONAL
    for name, value in VALUES.items():
        told = getattr(named, name)
        assert told == value, name
    for name, given in CALLS.items():
        getattr(named, name)(*given)
    assert port.called == [(name, *given) for name, given in CALLS.items()]
    assert named.label == "port.type = 'mine'"


def test_a_port_of_another_package_that_leaves_all_out_gets_the_defaults() -> None:
    named = PortBefore(NamedPort(Bare(), "bare"))
    plain = type("Plain", (OfPort, Readback), {})()
    for name in sorted(VALUES.keys() | {"wait"}):
        assert getattr(named, name) == getattr(plain, name), name
    assert named.numbers() == {}
    named.drop_heartbeat()
    named.accept_any_start()
    for act, given in (("set_interlock", False), ("set_hydraulics", "low")):
        with pytest.raises(Exception, match=naming("switched", "software")):
            getattr(named, act)(given)
