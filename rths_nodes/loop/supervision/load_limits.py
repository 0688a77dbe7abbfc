"""The check of Commands and Measurements against the limits of axes that are controlled by force."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import MODE_FORCE, MODE_HELD
from rths_nodes.loop.supervision.handover import Tares


class LoadCheck:
    """Checks the axes of ``limits`` that have those of force; they stand behind the others. ``dt`` s.

    ``tares`` as of the check of all axes.
    """

    def __init__(self, limits: dict[str, Limits], dt: float, tares: Tares | None = None) -> None:
        zeros = (tares or Tares.none(len(limits))).rows()
        found = zip(limits.items(), zeros, strict=True)
        self._rows = [(name, each, zero) for (name, each), zero in found if each.of_force]
        self._n = len(limits) - len(self._rows)
        self._dt = dt
        self._told: bytes | None = None
        """Modes of the last Measurement; None before the first, and for who judges none."""

    def command(
        self,
        targets: Sequence[float],
        commands: Sequence[float],
        previous: Sequence[float],
        modes: bytes,
        modes_before: bytes,
    ) -> str:
        """Why a Command must not be sent; empty when it may. Numbers are of these axes, ``modes`` of all."""
        for index, (name, limits, (_, force_zero, zero, _)) in enumerate(self._rows):
            target, now, before = targets[index], commands[index], previous[index]
            for what, value in (("target", target), ("command", now)):
                if not math.isfinite(value):
                    return f"axes.{name}: {what} = {value}: must be finite"
            by_force = self._by_force(modes, index)
            if by_force and self._told is not None and not self._takes_newtons(self._told, index):
                return (
                    f"axes.{name}: the rig tells no control mode in which it takes commands in N (MODE_HELD, "
                    "MODE_FORCE): it gets none"
                )
            same = by_force == self._by_force(modes_before, index)
            told = now + (force_zero if by_force else zero)
            judge = self._of_force if by_force else self._held
            if reason := judge(name, limits, told, (now - before) / self._dt if same else 0.0):
                return reason
        return ""

    def measurement(
        self,
        displacements: Sequence[float],
        forces: Sequence[float],
        targets: Sequence[float],
        modes: bytes,
        told: bytes,
    ) -> str:
        """Why the rig must not go on; empty when it may. ``modes`` are of the targets, ``told`` as measured."""
        self._told = told
        for index, (name, limits, (place, force_zero, _, reach)) in enumerate(self._rows):
            displacement, force = displacements[index], forces[index]
            # written so that nan does not pass
            if not abs(displacement) <= limits.stroke:
                return (
                    f"axes.{name}.limits.stroke: measured = {displacement:.6g} m: must be within +- "
                    f"{limits.stroke:g} m"
                )
            if not abs(force) <= limits.force:
                return f"axes.{name}.limits.force: measured = {force:.6g} N: must be within +- {limits.force:g} N"
            if not abs(displacement - place) <= reach:
                return (
                    f"axes.{name}.rig_axis.elastic_limit: measured = {displacement - place:.6g} m from the zero "
                    f"of the test: must be within +- {reach:g} m on this rung"
                )
            most, error = limits.force_error, targets[index] + force_zero - force
            if most is not None and self._by_force(modes, index) and not abs(error) <= most:
                return (
                    f"axes.{name}.limits.force_error: target - measured = {error:.6g} N: must be within "
                    f"+- {most:g} N"
                )
        return ""

    def _takes_newtons(self, told: bytes, index: int) -> bool:
        return bool(told) and told[self._n + index] in (MODE_FORCE, MODE_HELD)

    def _by_force(self, modes: bytes, index: int) -> bool:
        return bool(modes) and modes[self._n + index] == MODE_FORCE

    @staticmethod
    def _of_force(name: str, limits: Limits, now: float, rate: float) -> str:
        """Of a command in N, which changes with ``rate`` (N/s); 0 where that before was in m."""
        if abs(now) > limits.force:
            return f"axes.{name}.limits.force: command = {now:.6g} N: must be within +- {limits.force:g} N"
        if limits.force_rate is not None and abs(rate) > limits.force_rate:
            return (
                f"axes.{name}.limits.force_rate: command = {rate:.6g} N/s: must be within +- "
                f"{limits.force_rate:g} N/s"
            )
        return ""

    @staticmethod
    def _held(name: str, limits: Limits, now: float, velocity: float) -> str:
        """Of a command in m; the first one after force control says only from where its changes count."""
        if abs(now) > limits.stroke:
            return f"axes.{name}.limits.stroke: command = {now:.6g} m: must be within +- {limits.stroke:g} m"
        if abs(velocity) > limits.velocity:
            return (
                f"axes.{name}.limits.velocity: command = {velocity:.6g} m/s: must be within +- "
                f"{limits.velocity:g} m/s"
            )
        return ""
