# SPDX-License-Identifier: Apache-2.0
"""What a component leaves out of its declarations holds as they say, also of one that is not installed here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

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


def test_a_port_that_is_not_installed_declares_as_any_other() -> None:
    port = recorded("of_another", {"watchdog": 2.0}, "is not installed here", declarations.of_params("port"))
    assert (port.watchdog, port.builds_axes) == (2.0, False)
    assert not hasattr(recorded("of_another", {}, "is not installed here"), "builds_axes")
