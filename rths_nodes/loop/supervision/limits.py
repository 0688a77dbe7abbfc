"""Limits of an axis, and the check of Commands and Measurements against them.

The software limits are not a safety function: a rig needs its own interlocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rths_nodes.core.parameters import number, params
from rths_nodes.core.samples import Array, Command, Measurement


@params
class Limits:
    """Limits of one axis. Stroke, velocity and force have no defaults: they belong to the rig.

    Their bounds are far beyond any rig: a limit cannot be switched off, and every safe stop comes to an end.
    """

    stroke: float = number(
        "largest magnitude of command and measured displacement", "m", more_than=0.0, at_most=100.0
    )
    velocity: float = number(
        "largest step of the command from the previous one, per servo period", "m/s", more_than=0.0, at_most=1e3
    )
    force: float = number("largest magnitude of the measured force", "N", more_than=0.0, at_most=1e9)
    tracking_error: float | None = number(
        "largest magnitude of target minus measured displacement; not limited if left out",
        "m",
        None,
        more_than=0.0,
    )
    deceleration: float = number("deceleration of the safe stop", "m/s^2", 10.0, at_least=0.1)


class LimitCheck:
    """Checks commands before they are sent and measurements when they come, against the limits of all axes."""

    def __init__(
        self,
        limits: dict[str, Limits],
        dt: float,
        auxiliary_inputs: Sequence[str] = (),
        auxiliary_names: Sequence[str] = (),
    ) -> None:
        self._inputs, self._channels = tuple(auxiliary_inputs), tuple(auxiliary_names)
        self._axes = [
            (name, lim.stroke, lim.velocity * dt, lim.force, lim.tracking_error or math.inf, 1.0 / dt)
            for name, lim in limits.items()
        ]

    def command(self, command: Command, previous: Iterable[float]) -> str:
        """Why ``command`` must not be sent; empty when it may. ``previous``: what was sent before, m by axis."""
        rows = zip(self._axes, command.target.tolist(), command.command.tolist(), previous, strict=True)
        for (name, stroke, step, _, _, rate), target, now, before in rows:
            if abs(now) <= stroke and abs(now - before) <= step and math.isfinite(target):
                continue
            if not math.isfinite(target):
                why = "the response has run away, or lies beyond the reach of the setup"
                return f"axes.{name}: target = {target}: must be finite: {why}"
            if not math.isfinite(now):
                return f"axes.{name}: command = {now}: must be finite"
            if abs(now) > stroke:
                return f"axes.{name}.limits.stroke: command = {now:.6g} m: must be within +- {stroke:g} m"
            velocity = (now - before) * rate
            return (
                f"axes.{name}.limits.velocity: command = {velocity:.6g} m/s: must be within +- {step * rate:g} m/s"
            )
        return _not_finite("command", command.auxiliary, self._inputs) if command.auxiliary.size else ""

    def measurement(self, measured: Measurement, target: Array) -> str:
        """Why the rig must not go on after ``measured``; empty when it may. ``target``: (n_axes,) m."""
        rows = zip(
            self._axes, measured.displacement.tolist(), measured.force.tolist(), target.tolist(), strict=True
        )
        for (name, stroke, _, limit, tracking, _), displacement, force, wanted in rows:
            # written so that nan does not pass
            if not abs(displacement) <= stroke:
                return (
                    f"axes.{name}.limits.stroke: measured = {displacement:.6g} m: must be within +- {stroke:g} m"
                )
            if not abs(force) <= limit:
                return f"axes.{name}.limits.force: measured = {force:.6g} N: must be within +- {limit:g} N"
            if not abs(wanted - displacement) <= tracking:
                error = wanted - displacement
                return (
                    f"axes.{name}.limits.tracking_error: target - measured = {error:.6g} m: "
                    f"must be within +- {tracking:g} m"
                )
        return _not_finite("measured", measured.auxiliary, self._channels) if measured.auxiliary.size else ""


class OutgoingCommands:
    """Knows which Commands may be published: those within the limits of ``check`` from one to the next.

    The rig checks them again: what goes on between here and there is not known.
    """

    def __init__(self, check: LimitCheck) -> None:
        self._check = check
        self._sent: Iterable[float] = ()

    def start(self, measured: Measurement) -> None:
        """Measurement 0: what the rig stands at, from where the first Command sets out."""
        self._sent = measured.command.tolist()

    def refusal(self, command: Command) -> str:
        """Why ``command`` must not be published; empty when it may, and then the next one follows it."""
        reason = self._check.command(command, self._sent)
        if not reason:
            self._sent = command.command.tolist()
        return reason


def _not_finite(what: str, auxiliary: Array, names: Sequence[str]) -> str:
    """Which auxiliary value is not finite, in words; empty when all are."""
    for index, value in enumerate(auxiliary.tolist()):
        if not math.isfinite(value):
            name = names[index] if index < len(names) else f"auxiliary[{index}]"
            return f"{what} {name} = {value}: must be finite"
    return ""
