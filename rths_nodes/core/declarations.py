# SPDX-License-Identifier: Apache-2.0
"""Declarations of a component about itself, with what holds where it leaves them out: the registry fills these in.

So whoever asks finds each of them, on a component of this package or of another one.
"""

from __future__ import annotations

from typing import Any, ClassVar


class OfComponent:
    """Attributes of the class of any component."""

    external: ClassVar[bool] = False
    """It speaks to a socket, a process or a rig: there is no second one of it."""
    SOURCES: ClassVar[tuple[str, ...]] = ()
    """Keys of the publications that describe it, in ``config/publications.bib``."""


class OfPortParams:
    """Attributes of the ``Params`` of a port; where it has a parameter of such a name, that one counts."""

    builds_axes: ClassVar[bool] = False
    """Behind it stand models: every axis needs an actuator and a specimen there, or the test a rig."""
    carries_force: ClassVar[bool] = False
    """It takes Commands in newtons, for force loops that the controller closes."""
    can_be_switched: ClassVar[bool] = False
    """Its pressure and interlock can be switched on purpose, as a fault."""
    one_node: ClassVar[bool] = False
    """No axis of it can have a node of its own."""
    watchdog: ClassVar[float | None] = None
    """Time without a command after which the port itself holds the rig, s."""
    emulator: ClassVar[bool] = False
    """The far end is a program that emulates a rig."""
    stand_in: ClassVar[bool] = False
    """The far end says of itself that nothing moves behind it."""


class _Nothing:
    """Attributes of parameters that declare nothing."""


def of_params(family: str) -> type:
    """Return the class with what the parameters of a ``family`` may declare."""
    return OfPortParams if family == "port" else _Nothing


def complete(family: str, component: Any) -> None:
    """Give a ``component`` class of ``family``, and its ``Params``, the attributes that they leave out."""
    for cls, declared in ((component, OfComponent), (component.Params, of_params(family))):
        for name, value in vars(declared).items():
            if not name.startswith("_") and not hasattr(cls, name):
                setattr(cls, name, value)
