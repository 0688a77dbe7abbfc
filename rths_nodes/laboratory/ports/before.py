# SPDX-License-Identifier: Apache-2.0
"""A port before another one, which hands on all that it does not do itself."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.protocols import Port


class _HandedOn:
    """A member that is that of the port behind; one that an object sets for itself comes first."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, port: Any, owner: type) -> object:
        return self if port is None else getattr(port._port, self._name)


def _handed_on() -> Any:
    return _HandedOn()


class PortBefore(Port):
    """Everything is that of ``port``, but for what a class has of its own.

    Each member stands here: what is not declared of a port does not pass (``core/declarations.py``).
    """

    external = _handed_on()
    simulated = _handed_on()
    transport_samples = _handed_on()
    auxiliary_names = _handed_on()
    auxiliary_inputs = _handed_on()

    open = _handed_on()
    begin = _handed_on()
    arm_watchdog = _handed_on()
    disarm_watchdog = _handed_on()
    interlock = _handed_on()
    partial_stop = _handed_on()
    wait_tick = _handed_on()
    write = _handed_on()
    ready = _handed_on()
    read = _handed_on()
    truth = _handed_on()
    safe = _handed_on()
    close = _handed_on()

    active_command = _handed_on()
    hydraulics = _handed_on()
    control_mode = _handed_on()
    heartbeat = _handed_on()
    build = _handed_on()
    stated = _handed_on()
    ear = _handed_on()

    follows_rig = _handed_on()
    in_lockstep = _handed_on()
    wait = _handed_on()
    address = _handed_on()
    label = _handed_on()
    trigger = _handed_on()
    can_warn = _handed_on()
    armed = _handed_on()
    paced = _handed_on()
    handover = _handed_on()
    failure = _handed_on()
    counter_at_start = _handed_on()
    drop_heartbeat = _handed_on()
    numbers = _handed_on()
    accept_any_start = _handed_on()
    warn = _handed_on()
    set_interlock = _handed_on()
    set_hydraulics = _handed_on()

    def __init__(self, port: Port) -> None:
        self._port = port
