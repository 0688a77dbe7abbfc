# SPDX-License-Identifier: Apache-2.0
"""Commissioning of a rig: result, validity of the result, and reasons that forbid motion.

``rths commission`` measures a rig before a specimen is mounted. The result is valid for a year, unless the
receiver build or a part of the rig in :func:`rig_hash` changes. Without a valid result, :func:`barred` forbids all
rungs that move a real rig.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from rths_nodes.core.validation import to_data
from rths_nodes.laboratory.calibration import in_order_of_rig, limits_of_rig
from rths_nodes.loop.options import AUTO
from rths_nodes.loop.procedure_record import RUNGS
from rths_nodes.loop.scenario.schema import Scenario

HOLDS_FOR = timedelta(days=365)
"""Period of validity: one year, because laboratories calibrate sensors and inspect emergency stops yearly."""
CLOCKS = timedelta(days=1)
"""Largest accepted lead of a commissioning date over the current time, because computer clocks differ."""
PASSED, FAILED, NOT_TRIED, WITNESSED = VERDICTS = ("passed", "failed", "not tried", "witnessed")
"""Verdicts of a trial. ``NOT_TRIED``: skipped, with the reason in ``measured``. ``WITNESSED``: confirmed by two
persons."""

SIGN, VELOCITY, STROKE, CLOSED, STOPPED, KILLED, CABLE, INTERLOCK, PRESSURE = CAUSES = (
    "signs and cables",
    "limit of velocity",
    "limit of stroke",
    "session closed",
    "stop of an operator",
    "computer killed",
    "cable pulled",
    "interlock",
    "pressure",
)
"""Trials that every commissioning requires: a check of the signs, and each cause of a stop."""
WIDER = ("stroke", "velocity", "force", "deceleration")
"""Limits of a test that change the rig hash only if they are wider than the limits of the rig file."""
UNTRIED = ("limit of force", "limit of error")
"""Receiver limits that cannot be reached without a specimen."""
EMERGENCY, END_STOPS, CONTROLLER, CALIBRATION = (
    "emergency stop of the hydraulics",
    "mechanical end stops",
    "limits of the controller",
    "calibration",
)
"""Trials that require two witnesses, since version 0.10."""
VOID = (
    "a valve, a load cell or a displacement sensor",
    "the servo-controller or its firmware",
    "the receiver at the rig (its build)",
    "port, servo rate, channels, limits or handling in the rig file (its hash)",
)


def same_person(*names: str) -> bool:
    return len({"".join(unicodedata.normalize("NFKC", name).split()).casefold() for name in names}) == 1


@dataclass
class CommissioningRow:
    """One trial of a commissioning. All fields are strings, with units. ``stated`` is the expected behaviour.

    ``speed`` includes the fraction of the velocity limit. ``resolution`` is the smallest difference that the trial
    can detect. Both are empty in files of version 0.9.0.
    """

    cause: str
    what: str
    stated: str
    measured: str
    verdict: str
    speed: str = ""
    resolution: str = ""


@dataclass
class AxisHardware:
    valve: str = ""
    force: str = ""
    displacement: str = ""
    limits: str = ""


@dataclass
class Commissioning:
    """Result of a commissioning. ``date`` is an ISO 8601 time with an offset from UTC."""

    rig: str
    rig_hash: str
    build: str
    """Identifier of the receiver's build, as reported by the receiver. Empty if it reported none."""
    port: str
    operator: str
    second_person: str
    date: str
    versions: dict[str, str] = field(default_factory=dict)
    rows: list[CommissioningRow] = field(default_factory=list)
    rig_kind: str = ""
    """``REAL RIG`` or ``EMULATED``. Empty in files of version 0.9.0."""
    description: str = ""
    controller: str = ""
    axes: dict[str, AxisHardware] = field(default_factory=dict)
    proves: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> list[CommissioningRow]:
        return [row for row in self.rows if row.verdict not in (PASSED, NOT_TRIED, WITNESSED)]

    @property
    def counts(self) -> str:
        count = Counter(row.verdict for row in self.rows)
        return f"{len(self.rows)} rows: " + ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS)

    @property
    def reference(self) -> str:
        persons = f"{self.date}, by {self.operator} and {self.second_person}"
        return f"{persons} ({self.counts}), valid until {self.valid_until}, rig hash {self.rig_hash}"

    @property
    def done(self) -> datetime | None:
        """Time of the commissioning, or None if ``date`` is not a time with an offset from UTC."""
        try:
            done = datetime.fromisoformat(self.date)
        except ValueError:
            return None
        return None if done.tzinfo is None else done

    @property
    def valid_until(self) -> str:
        if self.done is None:
            return ""
        return (min(self.done.date(), date.max - HOLDS_FOR) + HOLDS_FOR).isoformat()

    @property
    def unsigned(self) -> bool:
        """True unless two persons with different names have signed the result."""
        names = self.operator.strip(), self.second_person.strip()
        return not all(names) or same_person(*names)


LATER = ("force_command", "press", "valve", "accuracy", "expires")
"""Keys that later versions added to rig files. They do not affect the hash if they are missing or empty."""


def rig_hash(scenario: Scenario) -> str:
    """Return a hash of the rig of ``scenario``, 16 hexadecimal digits.

    The hash covers port, servo rate, controller, channels and limits, and the engine unless it is ``auto``. Axis
    names in the scenario do not affect the hash.
    """
    head, axes = scenario.rig_file, []
    for axis in in_order_of_rig(scenario.axes).values():
        mine, rig = to_data(axis.limits), to_data(limits_of_rig(axis))
        wider = {key: mine[key] for key in WIDER if mine[key] > rig[key]}
        axes.append({"rig_axis": _as_before(to_data(axis.rig_axis)), "wider": wider})
    data: dict[str, object] = {"port": to_data(scenario.port), "servo_rate": scenario.servo_rate, "axes": axes}
    data["auxiliary"] = _as_before(to_data(head.auxiliary)) if head is not None else {}
    if scenario.engine != AUTO:
        data["engine"] = scenario.engine
    if head is not None and head.controller:
        data["controller"] = head.controller
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def _as_before(data: object) -> object:
    if not isinstance(data, dict):
        return data
    return {key: _as_before(value) for key, value in data.items() if not (key in LATER and value in (None, ""))}


def barred(result: Commissioning | None, scenario: Scenario, build: str | None, now: datetime) -> str:
    """Return the reasons that forbid motion, or an empty string. ``build`` is the receiver build, if known."""
    missing = "there is no RIG.commissioned.yaml next to the rig file"
    reasons = [missing] if result is None else _reasons(result, scenario, build, now)
    if not reasons:
        return ""
    rig = scenario.rig_file.name if scenario.rig_file is not None else scenario.name
    moving = ", ".join(name for name, rung in RUNGS.items() if rung.moves)
    return (
        f"rungs {moving} require a commissioned rig, but the rig {rig} has no valid commissioning: "
        f"{'; '.join(reasons)}. Run rths commission RIG"
    )


def _reasons(result: Commissioning, scenario: Scenario, build: str | None, now: datetime) -> list[str]:
    reasons = []
    if result.rig_hash != (mine := rig_hash(scenario)):
        reasons.append(f"port, channels or limits have changed (hash {result.rig_hash}, now {mine})")
    if build is not None and result.build != build:
        reasons.append(f"the build of the receiver has changed ({result.build or 'none'}, now {build or 'none'})")
    if (done := result.done) is None:
        reasons.append(f"the date {result.date!r} of the commissioning is not a time with an offset from UTC")
    elif done > now + CLOCKS:
        reasons.append(f"the date {result.date} of the commissioning is in the future")
    elif now - done > HOLDS_FOR:
        reasons.append(f"the commissioning of {result.date} is older than 12 months")
    tried = [row.cause for row in result.rows if row.verdict != NOT_TRIED]
    if lacking := [cause for cause in CAUSES if cause not in tried]:
        reasons.append(f"these causes of a stop were not tried: {', '.join(lacking)}")
    if any(row.cause == EMERGENCY and row.verdict == NOT_TRIED for row in result.rows):
        reasons.append(f"this cause of a stop was not witnessed: {EMERGENCY}")
    reasons += [
        f"the trial of {row.cause} ({row.what}) has failed (measured: {row.measured}; stated: {row.stated})"
        for row in result.failed
    ]
    return reasons + ["the commissioning is not signed by two persons"] * result.unsigned
