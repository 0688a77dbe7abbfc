# SPDX-License-Identifier: Apache-2.0
"""What a component leaves out of its declarations holds as they say, also of one that is not installed here."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from messages import mentions

from rths_nodes.core import declarations, registry
from rths_nodes.core.parameters import recorded


def test_what_is_left_out_is_filled_in_and_what_is_declared_stays() -> None:
    port = SimpleNamespace(external=True, Params=SimpleNamespace(one_node=True, watchdog=0.5))
    declarations.complete("port", port)
    assert (port.external, port.SOURCES) == (True, ())
    assert (port.Params.one_node, port.Params.watchdog, port.Params.builds_axes) == (True, 0.5, False)


@pytest.mark.parametrize("family", registry.FAMILIES)
def test_every_component_says_whether_there_can_be_a_second_one_of_it(family: str) -> None:
    for name in registry.names(family):
        cls = registry.load(family, name)
        assert isinstance(cls.external, (bool, property)), name
        assert isinstance(cls.SOURCES, tuple), name


@pytest.mark.parametrize("family", registry.FAMILIES)
def test_every_component_has_what_its_family_declares(family: str) -> None:
    for name in registry.names(family):
        declared = declarations.of_params(family)
        wanted = {key for base in declared.__mro__ for key in vars(base) if not key.startswith("_")}
        own = registry.load(family, name).Params
        names = {*dir(own), *(field.name for field in attrs.fields(own))}
        assert wanted <= names, name
        assert own.cannot_be_built == "", name


@pytest.mark.parametrize("own", [True, False])
def test_a_port_that_drops_its_heartbeat_itself_has_one(own: bool) -> None:
    """The default of :class:`OfPort` drops nothing."""
    members = {"drop_heartbeat": lambda self: None} if own else {}
    for bases in ((), (declarations.OfPort,)):
        port: Any = type("Mine", bases, members | {"Params": type("Params", (), {})})
        declarations.complete("port", port)
        assert port.Params.has_heartbeat is None
        assert declarations.drops_heartbeat(port) is own


def test_what_a_component_of_another_package_declares_counts() -> None:
    integrator = SimpleNamespace(Params=SimpleNamespace(ground="a_g", observes=True))
    declarations.complete("integrator", integrator)
    own = integrator.Params
    assert (own.ground, own.observes, own.who, own.experimental_stiffness) == ("a_g", True, "", None)
    compensator = SimpleNamespace(Params=SimpleNamespace())
    declarations.complete("compensator", compensator)
    assert (compensator.transport_in_lead, compensator.external, compensator.Params.known) == (False, False, None)


def test_a_component_that_is_not_installed_declares_as_any_other() -> None:
    port = recorded("of_another", {"watchdog": 2.0}, "is not installed here", declarations.of_recorded("port"))
    assert (port.watchdog, port.builds_axes, port.has_heartbeat) == (2.0, False, False)
    assert (port.transport_samples, port.longest_wait) == (0, math.inf)
    assert mentions(port.cannot_be_built, "installed")
    integrator = recorded("of_another", {"who": "he"}, "is gone", declarations.of_recorded("integrator"))
    assert (integrator.who, integrator.observes, integrator.ground) == ("he", True, None)
    assert not hasattr(recorded("of_another", {}, "is not installed here"), "builds_axes")
