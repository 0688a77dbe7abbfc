# SPDX-License-Identifier: Apache-2.0
"""A model of the procedure of a rig by its specification: the possible transitions and their causes.

The model does not use the implementation. If the effect of a fault is unknown, its prediction is None: the act may
then be done or refused, as long as a refused act changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOVING = frozenset(("CHECKING", "POSITIONING", "RUNNING", "STOPPING", "RESUMING", "UNLOADING"))
"""States in which a command may change."""

CAUSES: dict[tuple[str, str], str] = {
    ("IDLE", "CONNECTED"): "connect",
    ("CONNECTED", "REFERENCED"): "confirm_offsets",
    ("REFERENCED", "CHECKING"): "check",
    ("CHECKING", "REFERENCED"): "check",
    ("CHECKING", "STOPPING"): "trouble",
    ("REFERENCED", "POSITIONING"): "position",
    ("HELD", "POSITIONING"): "position",
    ("POSITIONING", "POSITIONED"): "position",
    ("POSITIONING", "STOPPING"): "trouble",
    ("POSITIONED", "ARMED"): "arm",
    ("POSITIONED", "HELD"): "trouble",
    ("ARMED", "HELD"): "trouble",
    ("ARMED", "TRIPPED"): "trouble",
    ("ARMED", "RUNNING"): "run",
    ("RUNNING", "HELD"): "run",
    ("RUNNING", "STOPPING"): "trouble",
    ("STOPPING", "HELD"): "trouble",
    ("STOPPING", "TRIPPED"): "trouble",
    ("HELD", "RESUMING"): "resume",
    ("RESUMING", "RUNNING"): "resume",
    ("RESUMING", "STOPPING"): "trouble",
    ("HELD", "TRIPPED"): "trouble",
    ("HELD", "UNLOADING"): "unload",
    ("UNLOADING", "HELD"): "unload",
    ("UNLOADING", "STOPPING"): "trouble",
    ("TRIPPED", "HELD"): "acknowledge",
    **{(state, "FINISHED"): "finish" for state in ("CONNECTED", "REFERENCED", "POSITIONED", "HELD", "TRIPPED")},
}
"""Cause of each transition: an act of the operator, or trouble (a stop, a hold, a fault)."""

FROM: dict[str, frozenset[str]] = {
    "connect": frozenset(("IDLE",)),
    "take_offsets": frozenset(("CONNECTED", "REFERENCED")),
    "confirm_offsets": frozenset(("CONNECTED", "REFERENCED")),
    "check": frozenset(("REFERENCED",)),
    "sign_for": frozenset(("REFERENCED",)),
    "position": frozenset(("REFERENCED", "HELD")),
    "arm": frozenset(("POSITIONED",)),
    "run": frozenset(("ARMED",)),
    "hold": frozenset(("RUNNING",)),
    "resume": frozenset(("HELD",)),
    "acknowledge": frozenset(("TRIPPED",)),
    "unload": frozenset(("HELD",)),
    "finish": frozenset(("CONNECTED", "REFERENCED", "POSITIONED", "HELD", "TRIPPED")),
}
"""States from which an act is possible. A stop and a note are never refused."""

FAULTS = frozenset(("interlock", "no_pressure", "silent", "overload", "cable", "interrupted", "host"))
"""Events that end a motion by a trip."""
LYING = frozenset(("frozen", "flickers", "flipped", "drifts"))
"""Faults of a displacement sensor."""
LYING_FORCE = frozenset(("force_frozen", "force_flipped", "force_drifts"))
VAGUE = frozenset(("low_pressure", "shifted", "force_shifted")) | LYING | LYING_FORCE
"""Faults that may end a motion, be found later, or have no effect."""
BENIGN = frozenset(("repair", "pressure_back", "interlock_back", "input file", "plug-in"))
"""Events that end no motion."""


@dataclass
class RigModel:
    """State of the rig and of its procedure.

    ``known``: the stiffness is known well enough to verify the scales. ``wrong``: a sensor has the wrong sign, or
    is dead from the beginning.
    """

    known: bool
    wrong: bool
    state: str = "IDLE"
    act: str = ""
    closed: bool = True
    pressure: str = "high"
    silent: bool = False
    overload: bool = False
    broken: bool = False
    given_back: bool = False
    shift: float = 0.0
    force_shift: float = 0.0
    lying: bool = False
    """A displacement sensor is faulty."""
    lying_force: bool = False
    edited: bool = False
    """A file or a plug-in of the test has changed since it was read."""
    vague: bool = False
    """The positions of the actuators are unknown: they could not follow, or a sensor was wrong."""
    misled: bool = False
    """A force axis was stopped at the position of a wrong sensor; its command stays off the true position."""
    taken: bool = False
    taken_off: bool = False
    """A fault was present while the offsets were taken: a later check may find it."""
    confirmed: bool = False
    cleared: bool | None = False
    unsigned: bool | None = False
    suspended: bool = False
    loaded: bool = False
    """A force at rest was not tared: the operator has to sign for it."""
    ratio: int = 1
    trouble: list[str] = field(default_factory=list)
    """Events in the current act."""
    surprises: list[str] = field(default_factory=list)
    """Transitions without a cause."""

    def changed(self, state: str, reason: str = "") -> None:
        """Check the cause of a transition to ``state``."""
        cause = CAUSES.get((self.state, state))
        expected = cause == self.act or (cause == "trouble" and bool(self.trouble))
        if state == "TRIPPED" and (self.broken or self.given_back):  # reported in any state
            expected = True
        if cause == "resume":  # in a run, requested by the operator
            expected = self.act == "run" and self.ratio > 1
        elif self.act == "run" and (self.state, state) == ("RUNNING", "HELD"):
            expected = True
        if not expected:
            self.surprises.append(
                f"{self.state} -> {state} in the act {self.act or 'none'}, {self.trouble}: {reason}"
            )
        self.state = state

    @property
    def standing(self) -> bool:
        """True if an earlier fault has an unknown effect on a motion."""
        faulty = self.vague or self.misled or self.lying or self.lying_force or self.wrong
        return bool(faulty or self.shift or self.force_shift or self.pressure == "low")

    @property
    def over(self) -> bool:
        """True if no further act is possible."""
        gone = self.broken or self.given_back or self.state == "FINISHED"
        return gone or (self.state == "HELD" and self.cleared is False)

    @property
    def unsure(self) -> bool:
        """True if the offsets or the result of the check may be wrong."""
        return self.cleared is None or self.taken_off

    @property
    def sound(self) -> bool:
        """True if the measurements are within the limits and the rig can move."""
        faulty = self.silent or self.overload or self.broken or self.given_back
        return self.closed and self.pressure != "off" and not faulty

    @property
    def fit(self) -> bool | None:
        """True if the rig may move; None if that depends on the size of an error."""
        if not self.sound:
            return False
        return None if self.standing else True

    def allows(self, act: str) -> bool | None:
        """True if ``act`` is possible now; None if unknown."""
        if self.state not in FROM[act]:
            return False
        if self.suspended != (act == "resume") and self.state == "HELD":
            return False
        if act in ("arm", "run") and self.edited:
            return False
        if act in ("position", "arm", "run"):
            return _all(self.cleared, self.fit)
        if act in ("check", "unload"):
            return _all(self.fit, None if self.unsure else True)
        return {
            "connect": None if self.standing or not self.sound else True,
            "take_offsets": _all(self.sound, None if self.standing else True),
            "confirm_offsets": _all(self.taken, None if self.standing else True),
            "sign_for": self.unsigned,
            "acknowledge": not (self.broken or self.given_back),
        }.get(act, True)

    def begin(self, act: str) -> None:
        self.act, self.trouble = act, ["standing"] * self.standing + ["unsure"] * self.unsure
        if not self.sound:
            self.trouble.append("unsound")


def _all(*values: bool | None) -> bool | None:
    if any(value is False for value in values):
        return False
    return None if None in values else True
