# SPDX-License-Identifier: Apache-2.0
"""Planted faults of an emulated receiver or rig. They are not reported: commissioning must detect them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from rths_nodes.core.errors import ConfigError, unknown
from rths_nodes.core.samples import HYDRAULICS_NOT_TOLD, HYDRAULICS_OFF, INTERLOCK_CLOSED, Array
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.receiver import ReceiverLimits

BRAKING, HARD, STROKE, VELOCITY, WATCHDOG, ENDLESS, BRIDGE, SWAPPED, SIGN, INTERLOCK, JUMP = (
    *("longer_braking", "hard_braking", "wider_stroke", "wider_velocity", "dead_watchdog", "endless_bridge"),
    *("longer_bridge", "swapped_axes", "wrong_sign", "dead_interlock", "jump_on_pressure"),
)
KINDS = {
    BRAKING: "the receiver brakes with half of the deceleration that it states",
    HARD: "the receiver brakes with twice the deceleration that it states",
    STROKE: "the stroke limit of the receiver is a fifth wider than stated",
    VELOCITY: "the velocity limit of the receiver is twice the stated limit",
    WATCHDOG: "the receiver brakes if a command is missing, but continues with the next command, however late",
    ENDLESS: "the receiver continues for ever with constant velocity if commands are missing",
    BRIDGE: "the receiver bridges twice as many samples as it states",
    SWAPPED: "the displacement sensors of the first two axes are swapped",
    SIGN: "the displacement sensor of the first axis has the wrong sign",
    INTERLOCK: "the receiver ignores the interlock",
    JUMP: "after pressure returns, the actuators are 1 mm away from their commands",
}
FACTORS = {BRAKING: ("acceleration", 0.5), HARD: ("acceleration", 2.0), STROKE: ("stroke", 1.2)}
FACTORS |= {VELOCITY: ("velocity", 2.0)}
JUMP_M = 1e-3
LONGEST_S = 9.9
"""Longest possible timeout of a receiver's watchdog, s. ``rths_init`` refuses 10 s and more."""


class Planted:
    """Applies planted faults to an emulated receiver or rig.

    Raises ConfigError if a fault is unknown, or if axes are swapped on a rig with one axis.
    """

    def __init__(self, kinds: Sequence[str], n_axes: int) -> None:
        for kind in kinds:
            if kind not in KINDS:
                raise unknown("--plant", "fault", kind, KINDS)
        if SWAPPED in kinds and n_axes < 2:
            raise ConfigError(f"--plant = {SWAPPED!r}: requires a rig with at least two axes")
        self._kinds = frozenset(kinds)
        self._pressure = HYDRAULICS_NOT_TOLD
        self._off = 0.0

    def limits(self, stated: Sequence[ReceiverLimits]) -> list[ReceiverLimits]:
        limits = list(stated)
        for kind, (name, factor) in FACTORS.items():
            if kind in self._kinds:
                limits = [row._replace(**{name: factor * getattr(row, name)}) for row in limits]
        return limits

    def waits(self, bridged: int, watchdog: int, dt: float) -> tuple[int, int]:
        """Return the number of samples that the receiver bridges, and the number after which it ends the session.

        Planted faults change the stated numbers, ``bridged`` and ``watchdog``.
        """
        longest = int(LONGEST_S / dt)
        if ENDLESS in self._kinds:
            return longest, longest + 1
        if WATCHDOG in self._kinds:
            return bridged, longest
        return (2 * bridged, watchdog + bridged) if BRIDGE in self._kinds else (bridged, watchdog)

    def answer(self, data: bytes, stated: Sequence[ReceiverLimits], bridged: int, watchdog: int) -> bytes:
        if not self._kinds & {*FACTORS, WATCHDOG, ENDLESS, BRIDGE}:
            return data
        head, start = datagrams.head_of(data), datagrams.HEAD.size
        rows = b""
        for index, limits in enumerate(stated):
            active = datagrams.ANSWER_ROW.unpack_from(data, start + index * datagrams.ANSWER_ROW.size)[:2]
            shown = (limits.stroke, limits.velocity, limits.acceleration, limits.force, limits.error)
            rows += datagrams.ANSWER_ROW.pack(*active, *shown)
        end = datagrams.ANSWER_END.unpack_from(data, start + len(rows))
        behind = data[start + len(rows) + datagrams.ANSWER_END.size : -datagrams.CHECKSUM.size]
        return datagrams.packed(head, rows + datagrams.ANSWER_END.pack(bridged, watchdog, *end[2:]) + behind)

    def shows(self, sensors: ctypes.Structure) -> None:
        shown = sensors.displacement
        if SIGN in self._kinds:
            shown[0] = -shown[0]
        if SWAPPED in self._kinds:
            shown[0], shown[1] = shown[1], shown[0]
        if INTERLOCK in self._kinds:
            sensors.interlock = INTERLOCK_CLOSED

    def leads(self, command: Array, hydraulics: int) -> Array:
        if JUMP not in self._kinds:
            return command
        if self._pressure == HYDRAULICS_OFF != hydraulics:
            self._off = JUMP_M
        self._pressure = hydraulics
        return np.asarray(command + self._off)
