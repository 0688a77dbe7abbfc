# SPDX-License-Identifier: Apache-2.0
"""Result of the commissioning of a rig, its validity, and why it prevents motion.

``rths commission`` measures a rig before any specimen is mounted and writes a :class:`Commissioning`. It is valid
for the port, channels and limits at the time (:func:`rig_hash`), and for the build of the receiver. Without a
valid one, no rung that moves can be armed behind the port of a real rig: :func:`barred`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rths_nodes.core.protocols import Port
from rths_nodes.core.validation import to_data
from rths_nodes.laboratory.calibration import in_order_of_rig, limits_of_rig
from rths_nodes.loop.procedure_record import RUNGS
from rths_nodes.loop.scenario.axis import Axis
from rths_nodes.loop.scenario.schema import Scenario

HOLDS_FOR = timedelta(days=365)
"""Validity: laboratories calibrate sensors, and inspect emergency stops, once a year."""
CLOCKS = timedelta(days=1)
"""Tolerance for a date in the future, from a computer with another clock."""
PASSED, FAILED, NOT_TRIED = VERDICTS = ("passed", "failed", "not tried")
"""Verdicts of a row. A row that was not tried prevents nothing; ``measured`` has the reason."""

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
"""Causes that every commissioning tries."""
WIDER = ("stroke", "velocity", "force", "deceleration")
"""Limits for which a test may be narrower than its rig."""
UNTRIED = ("limit of force", "limit of error")
"""Limits of a receiver that cannot be reached without a specimen."""


@dataclass
class CommissioningRow:
    """One trial: cause, stated and measured behaviour, as texts with units."""

    cause: str
    what: str
    stated: str
    measured: str
    verdict: str


@dataclass
class Commissioning:
    """The signed result: rig, person, time and findings. Times are in ISO 8601."""

    rig: str
    rig_hash: str
    build: str
    """Build of the receiver as reported, or empty."""
    port: str
    operator: str
    second_person: str
    date: str
    versions: dict[str, str] = field(default_factory=dict)
    rows: list[CommissioningRow] = field(default_factory=list)
    rig_kind: str = ""
    """REAL RIG or EMULATED; empty in a file of 0.9.0."""

    @property
    def failed(self) -> list[CommissioningRow]:
        return [row for row in self.rows if row.verdict not in (PASSED, NOT_TRIED)]


def rig_hash(scenario: Scenario) -> str:
    """Return the hash of the rig of ``scenario``: port, rate, channels and limits in effect, overrides included.

    Scenarios on one rig file have the same hash, whatever the names of its axes.
    """
    rig: dict[str, object] = {"port": to_data(scenario.port), "servo_rate": scenario.servo_rate}
    rig["axes"] = [_axis(axis) for axis in in_order_of_rig(scenario.axes).values()]
    rig["auxiliary"] = to_data(scenario.rig_file.auxiliary) if scenario.rig_file is not None else {}
    return hashlib.sha256(json.dumps(rig, sort_keys=True).encode()).hexdigest()[:16]


def _axis(axis: Axis) -> dict[str, object]:
    mine, rig = to_data(axis.limits), to_data(limits_of_rig(axis))
    wider = {key: mine[key] for key in WIDER if mine[key] > rig[key]}
    return {"rig_axis": _as_before(to_data(axis.rig_axis)), "wider": wider}


LATER = ("force_command", "press")
"""Keys of later rig files: left out, they do not change the hash."""


def _as_before(data: object) -> object:
    if not isinstance(data, dict):
        return data
    return {key: _as_before(each) for key, each in data.items() if not (key in LATER and each is None)}


def barred(found: Commissioning | None, scenario: Scenario, build: str | None, now: datetime) -> str:
    """Return why no rung that moves can be armed on the rig of ``scenario``, or empty.

    ``found`` is its commissioning; ``build`` is the receiver's, None while unknown.
    """
    reasons = _missing() if found is None else _reasons(found, scenario, build, now)
    if not reasons:
        return ""
    rig = scenario.rig_file.name if scenario.rig_file is not None else scenario.name
    moving = ", ".join(name for name, rung in RUNGS.items() if rung.moves)
    return f"rungs {moving} need a commissioned rig: {'; '.join(reasons)}: rths commission RIG, here {rig}"


def not_commissioned(
    found: Commissioning | None, scenario: Scenario, rung: str, port: Port, connected: bool, now: datetime
) -> str:
    """Return why ``rung`` cannot be armed behind ``port``, or empty: see :func:`barred`."""
    if port.simulated or rung not in RUNGS or not RUNGS[rung].moves:
        return ""
    return barred(found, scenario, port.build if connected else None, now)


def _missing() -> list[str]:
    return ["it was not commissioned (RIG.commissioned.yaml beside the rig file)"]


def _reasons(found: Commissioning, scenario: Scenario, build: str | None, now: datetime) -> list[str]:
    reasons = []
    if found.rig_hash != (mine := rig_hash(scenario)):
        reasons.append(f"port, channels or limits have changed since: {found.rig_hash} then, {mine} now")
    if build is not None and found.build != build:
        reasons.append(f"the receiver has another build: {found.build or 'none'} then, {build or 'none'} now")
    reasons += _age(found.date, now)
    tried = [row.cause for row in found.rows if row.verdict != NOT_TRIED]
    if lacking := [cause for cause in CAUSES if cause not in tried]:
        reasons.append(f"not tried: {', '.join(lacking)}")
    reasons += [f"{row.cause}, {row.what}: {row.measured}, stated {row.stated}" for row in found.failed]
    return reasons + _unsigned(found)


def _age(date: str, now: datetime) -> list[str]:
    try:
        done = datetime.fromisoformat(date)
    except ValueError:
        done = None
    if done is None or done.tzinfo is None:
        return [f"its date = {date!r}: is no time with an offset from UTC"]
    if done > now + CLOCKS:
        return [f"its date {date} is in the future"]
    return [f"it is of {date}, older than 12 months"] if now - done > HOLDS_FOR else []


def _unsigned(found: Commissioning) -> list[str]:
    names: Sequence[str] = (found.operator.strip(), found.second_person.strip())
    if all(names) and names[0].casefold() != names[1].casefold():
        return []
    return ["it is not signed by two persons"]
