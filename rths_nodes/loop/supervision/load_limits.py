"""The check of Commands and Measurements against the limits of axes that are controlled by force."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rths_nodes.core.limits import Limits
from rths_nodes.core.samples import MODE_FORCE, MODE_HELD


class LoadCheck:
    """Checks the axes of ``limits`` that have those of force; they stand behind the others. ``dt`` s."""

    def __init__(self, limits: dict[str, Limits], dt: float) -> None:
        self._rows = [(name, each) for name, each in limits.items() if each.of_force]
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
        for index, (name, limits) in enumerate(self._rows):
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
            reason = self._of_force(name, limits, now, before, same) if by_force else ""
            reason = reason or ("" if by_force else self._held(name, limits, now, before, same))
            if reason:
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
        for index, (name, limits) in enumerate(self._rows):
            displacement, force = displacements[index], forces[index]
            # written so that nan does not pass
            if not abs(displacement) <= limits.stroke:
                return (
                    f"axes.{name}.limits.stroke: measured = {displacement:.6g} m: must be within +- "
                    f"{limits.stroke:g} m"
                )
            if not abs(force) <= limits.force:
                return f"axes.{name}.limits.force: measured = {force:.6g} N: must be within +- {limits.force:g} N"
            most = limits.force_error
            if most is not None and self._by_force(modes, index) and not abs(targets[index] - force) <= most:
                return (
                    f"axes.{name}.limits.force_error: target - measured = {targets[index] - force:.6g} N: must be "
                    f"within +- {most:g} N"
                )
        return ""

    def _takes_newtons(self, told: bytes, index: int) -> bool:
        return bool(told) and told[self._n + index] in (MODE_FORCE, MODE_HELD)

    def _by_force(self, modes: bytes, index: int) -> bool:
        return bool(modes) and modes[self._n + index] == MODE_FORCE

    def _of_force(self, name: str, limits: Limits, now: float, before: float, same: bool) -> str:
        """Of a command in N; ``same`` where that before was in N, too."""
        if abs(now) > limits.force:
            return f"axes.{name}.limits.force: command = {now:.6g} N: must be within +- {limits.force:g} N"
        rate = (now - before) / self._dt
        if same and limits.force_rate is not None and abs(rate) > limits.force_rate:
            return (
                f"axes.{name}.limits.force_rate: command = {rate:.6g} N/s: must be within +- "
                f"{limits.force_rate:g} N/s"
            )
        return ""

    def _held(self, name: str, limits: Limits, now: float, before: float, same: bool) -> str:
        """Of a command in m; the first one after force control says only from where its changes count."""
        if abs(now) > limits.stroke:
            return f"axes.{name}.limits.stroke: command = {now:.6g} m: must be within +- {limits.stroke:g} m"
        velocity = (now - before) / self._dt
        if same and abs(velocity) > limits.velocity:
            return (
                f"axes.{name}.limits.velocity: command = {velocity:.6g} m/s: must be within +- "
                f"{limits.velocity:g} m/s"
            )
        return ""
