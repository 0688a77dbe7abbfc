"""What keeps the rig safe, the same objects in all hosts: states of a test, limits, the safe stop.

The software stop is not a safety function: a rig needs its own interlocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum

from rths_nodes.components import Array, Command, Measurement
from rths_nodes.params import number, params

LOCKSTEP_WINDOW = 512
"""In lockstep the rig runs at most this many samples ahead of the monitor and the recorder, and a trip found by
the monitor at sample k takes effect at k + LOCKSTEP_WINDOW: the same sample, however fast anybody is."""


class State(IntEnum):
    """States of a test (TestState.msg)."""

    IDLE = 0
    CONNECTED = 1
    REFERENCED = 2
    POSITIONED = 3
    ARMED = 4
    RUNNING = 5
    STOPPING = 6
    FINISHED = 7
    HELD = 8
    TRIPPED = 9


ENDED = (State.FINISHED, State.HELD, State.TRIPPED)
_SUCCESSORS = {
    State.IDLE: (State.CONNECTED,),
    State.CONNECTED: (State.REFERENCED, State.IDLE),
    State.REFERENCED: (State.POSITIONED, State.IDLE),
    State.POSITIONED: (State.ARMED, State.IDLE, State.HELD, State.TRIPPED),
    State.ARMED: (State.RUNNING, State.HELD, State.TRIPPED),
    State.RUNNING: (State.STOPPING, State.FINISHED),
    State.STOPPING: (State.HELD, State.TRIPPED),
    State.FINISHED: (State.IDLE, State.TRIPPED),
    State.HELD: (State.IDLE,),
    State.TRIPPED: (State.IDLE,),
}


class TestMachine:
    """The state of a test and why it was entered; refuses a transition that is not in the diagram."""

    __test__ = False  # not a test case, whatever pytest thinks of the name

    def __init__(self) -> None:
        self.state = State.IDLE
        self.reason = ""

    def to(self, state: State, reason: str = "") -> None:
        """Enter ``state``. Raises RuntimeError when the diagram has no such arrow."""
        if state not in _SUCCESSORS[self.state]:
            raise RuntimeError(f"test state {self.state.name} -> {state.name}: no such transition")
        self.state = state
        self.reason = reason or self.reason


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
    deceleration: float = number("of the safe stop", "m/s^2", 10.0, at_least=0.1)


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

    def command(self, command: Command, previous: Array) -> str:
        """Why ``command`` must not be sent; empty when it may. ``previous``: what was sent before, (n_axes,) m."""
        rows = zip(self._axes, command.target.tolist(), command.command.tolist(), previous.tolist(), strict=True)
        for (name, stroke, step, _, _, rate), target, now, before in rows:
            if not math.isfinite(target):
                why = "the response has run away, or lies beyond the reach of the setup"
                return f"axes.{name}: target = {target}: must be finite: {why}"
            if not math.isfinite(now):
                return f"axes.{name}: command = {now}: must be finite"
            if abs(now) > stroke:
                return f"axes.{name}.limits.stroke: command = {now:.6g} m: must be within +- {stroke:g} m"
            if abs(now - before) > step:
                velocity = (now - before) * rate
                bound = f"must be within +- {step * rate:g} m/s"
                return f"axes.{name}.limits.velocity: command = {velocity:.6g} m/s: {bound}"
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


def _not_finite(what: str, auxiliary: Array, names: Sequence[str]) -> str:
    """Which auxiliary value is not a number; empty: none."""
    for index, value in enumerate(auxiliary.tolist()):
        if not math.isfinite(value):
            name = names[index] if index < len(names) else f"auxiliary[{index}]"
            return f"{what} {name} = {value}: must be finite"
    return ""


def excess_travel(limits: Limits, max_bridge: float) -> float:
    """How far an axis may go on at most, m, from the last sample with all it needs until it is safe.

    At the velocity limit as long as may be bridged (s), then with the deceleration of the safe stop.
    """
    braking = limits.velocity**2 / (2.0 * limits.deceleration)
    return min(limits.velocity * max_bridge + braking, 2.0 * limits.stroke)


class SafeStop:
    """The simulator's safe policy: each axis goes on with its velocity, slows down at its deceleration, holds.

    ``position`` and ``velocity``: of the command when the stop begins, (n_axes,) m and m/s. The stop never
    leaves the stroke: an axis that would is held at its end.
    """

    def __init__(self, limits: dict[str, Limits], dt: float, position: Array, velocity: Array) -> None:
        self._dt = dt
        self._limits = [(lim.stroke, lim.velocity, lim.deceleration * dt) for lim in limits.values()]
        self._position: list[float] = position.tolist()
        self._velocity = [
            max(-cap, min(cap, v)) for v, (_, cap, _) in zip(velocity.tolist(), self._limits, strict=True)
        ]

    @property
    def at_rest(self) -> bool:
        """True when every axis holds."""
        return not any(self._velocity)

    def step(self) -> list[float]:
        """The next command, (n_axes,) m."""
        for axis, (stroke, _, brake) in enumerate(self._limits):
            v = self._velocity[axis]
            self._velocity[axis] = v = math.copysign(max(abs(v) - brake, 0.0), v) if v else 0.0
            wanted = self._position[axis] + v * self._dt
            self._position[axis] = max(-stroke, min(stroke, wanted))
            if self._position[axis] != wanted:
                self._velocity[axis] = 0.0
        return self._position
