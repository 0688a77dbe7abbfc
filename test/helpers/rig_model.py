# SPDX-License-Identifier: Apache-2.0
"""A model of the procedure of a rig, by the words of its specification: what an act may lead to, and why.

It knows nothing of how the procedure is built. Where a fault leaves open how far a rig was off, what it expects is
None: both are right then, as long as a refused act changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MOVING = frozenset(("CHECKING", "POSITIONING", "RUNNING", "STOPPING", "RESUMING", "UNLOADING"))
"""The states in which a command may change."""

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
"""What may lead from one state to another: an act of the operator, or trouble (a stop, a hold, a fault)."""

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
"""From where an act leads on. A stop and a note are never refused."""

FAULTS = frozenset(("interlock", "no_pressure", "silent", "overload", "cable", "interrupted", "host"))
"""What ends a motion by a trip."""
LYING = frozenset(("frozen", "flickers", "flipped", "drifts"))
"""A displacement sensor is wrong."""
LYING_FORCE = frozenset(("force_frozen", "force_flipped", "force_drifts"))
VAGUE = frozenset(("low_pressure", "shifted", "force_shifted")) | LYING | LYING_FORCE
"""What may end it, or be found, or not matter."""
BENIGN = frozenset(("repair", "pressure_back", "interlock_back", "input file", "plug-in"))
"""What ends nothing that is under way."""


@dataclass
class RigModel:
    """What is known of the rig and its procedure.

    ``known``: its stiffness is known well enough to verify the scales. ``wrong``: a sensor has the wrong sign, or
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
    """A displacement sensor has gone wrong."""
    lying_force: bool = False
    edited: bool = False
    """A file of the test, or what computes it, is another than it was read."""
    vague: bool = False
    """Where the actuators stand is not known: they could not follow, or their sensor has not shown it."""
    misled: bool = False
    """A force axis has been stopped where a wrong sensor showed it, and its command stays off its true place."""
    taken: bool = False
    taken_off: bool = False
    """Something was wrong while the offsets were taken: a check that comes later may find it."""
    confirmed: bool = False
    cleared: bool | None = False
    unsigned: bool | None = False
    suspended: bool = False
    loaded: bool = False
    """A force stands at rest, and was not tared: the operator has to sign for it."""
    ratio: int = 1
    trouble: list[str] = field(default_factory=list)
    """What has happened in the act under way."""
    surprises: list[str] = field(default_factory=list)
    """Transitions that nothing has caused."""

    def changed(self, state: str, reason: str = "") -> None:
        """The procedure says that it has entered ``state``, for a ``reason``."""
        cause = CAUSES.get((self.state, state))
        right = cause == self.act or (cause == "trouble" and bool(self.trouble))
        if state == "TRIPPED" and (self.broken or self.given_back):  # reported in any state
            right = True
        if cause == "resume":  # in a run, at the operator's wish
            right = self.act == "run" and self.ratio > 1
        elif self.act == "run" and (self.state, state) == ("RUNNING", "HELD"):
            right = True
        if not right:
            self.surprises.append(
                f"{self.state} -> {state} in the act {self.act or 'none'}, {self.trouble}: {reason}"
            )
        self.state = state

    @property
    def standing(self) -> bool:
        """Whether something is wrong from before, of which it is not known what it does to a motion."""
        return bool(
            self.vague
            or self.misled
            or self.lying
            or self.lying_force
            or self.shift
            or self.force_shift
            or self.wrong
            or self.pressure == "low"
        )

    @property
    def over(self) -> bool:
        """Whether nothing leads on from here."""
        gone = self.broken or self.given_back or self.state == "FINISHED"
        return gone or (self.state == "HELD" and self.cleared is False)

    @property
    def unsure(self) -> bool:
        """Whether what was found of the rig, at the offsets or in its check, may be wrong."""
        return self.cleared is None or self.taken_off

    @property
    def sound(self) -> bool:
        """Whether what is measured is within the limits, and the rig can be moved."""
        faulty = self.silent or self.overload or self.broken or self.given_back
        return self.closed and self.pressure != "off" and not faulty

    @property
    def fit(self) -> bool | None:
        """Whether the rig may be moved; None where that depends on how far it is off."""
        if not self.sound:
            return False
        return None if self.standing else True

    def allows(self, act: str) -> bool | None:
        """Whether ``act`` is possible now."""
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
        """``act`` begins."""
        self.act, self.trouble = act, ["standing"] * self.standing + ["unsure"] * self.unsure
        if not self.sound:
            self.trouble.append("unsound")


def _all(*values: bool | None) -> bool | None:
    if any(value is False for value in values):
        return False
    return None if None in values else True
