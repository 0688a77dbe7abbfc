# SPDX-License-Identifier: Apache-2.0
"""Record of a procedure: head, acts, offsets, checks and rungs, as plain numbers and words.

``recording/procedure.py`` keeps it in a file beside the recordings of the rungs; the report is made of it.
Times are texts in ISO 8601 with their offset from UTC; numbers are in SI units, by the names of the axes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rths_nodes.core.data import Data
from rths_nodes.loop.supervision.late import LateData

VERIFIED, NOT_VERIFIED, WRONG, SIGNED = "verified", "not verified", "wrong", "signed for"
"""Findings of a check on a sign or a scale; ``SIGNED``: the operator answers for what is not verified."""


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder on which a test is rehearsed: from the computer alone to the whole test."""

    name: str
    title: str
    words: str
    on_rig: bool
    """The port of the rig is used."""
    moves: bool
    """The actuators move; the rung has to be armed."""


RUNGS = {
    rung.name: rung
    for rung in (
        Rung("a", "embedded", "all computed, in one process without ROS", False, False),
        Rung("b", "nodes", "nodes, with a simulator in place of the rig", False, False),
        Rung("c", "computed, not sent", "the rig answers, commands are computed but not sent", True, False),
        Rung(
            "d", "moves, force computed", "the rig moves, its force is computed from what it measures", True, True
        ),
        Rung("e", "slow time", "the rig moves so many times slower than the structure", True, True),
        Rung("f", "reduced level", "in real time, with a part of the excitation", True, True),
        Rung("g", "full", "the test", True, True),
    )
}


def moves(name: str) -> bool:
    """Return whether the actuators move on a rung, rung h of versions up to 0.9.0 included."""
    return name == "h" or (name in RUNGS and RUNGS[name].moves)


@dataclass
class AxisOffsets:
    """Offsets of one axis: mean and scatter (rms) of a time without motion, m and N, in axis coordinates.

    ``command`` is the active command of the controller at the same time; nan where it cannot be read.
    """

    displacement: float
    displacement_scatter: float
    force: float
    force_scatter: float
    command: float
    force_tared: bool = False
    """The operator has stated that the specimen carries nothing: the force counts from here."""


@dataclass
class OffsetsRecord:
    """Offsets of all axes, taken over ``seconds``; ``hash`` names them when the rig is armed."""

    time: str
    seconds: float
    axes: dict[str, AxisOffsets]
    hash: str
    confirmed: bool = False


@dataclass
class AxisChecks:
    """Checks of one axis by the small move: VERIFIED, NOT_VERIFIED, WRONG or SIGNED for each, and in words.

    ``stiffness`` N/m as measured; ``expected`` and its band ``low`` to ``high`` N/m where the rig file has them.
    ``static_error`` m is by how much less the displacement has changed than the command at the end of the move,
    where the force had changed by ``static_error_force`` N; it comes ``late`` s after the command;
    ``lost_motion`` m is what the command went without a displacement. None: not found.
    """

    displacement_sign: str = NOT_VERIFIED
    force_sign: str = NOT_VERIFIED
    displacement_scale: str = NOT_VERIFIED
    force_scale: str = NOT_VERIFIED
    stiffness: float | None = None
    expected: float | None = None
    low: float | None = None
    high: float | None = None
    findings: list[str] = field(default_factory=list)
    """Findings that bar the way, in the words that an operator needs."""
    remarks: list[str] = field(default_factory=list)
    """Observations that bar nothing."""
    static_error: float | None = None
    static_error_force: float | None = None
    late: float | None = None
    lost_motion: float | None = None
    force_loop: str = ""
    """Force loop that the controller closes, by the small force; empty of an axis that has none."""
    ratios: dict[str, float] = field(default_factory=dict)
    """Stiffness over what is expected, by who expects it: the scenario's specimen, the integrator."""
    beside: dict[str, float] = field(default_factory=dict)
    """By how much its force changes with the displacement of each other axis, N/m: of a coupled specimen."""
    damping: float | None = None
    """Its force in motion alone over its velocity, N s/m."""
    unlike: list[str] = field(default_factory=list)
    """Deviations that somebody has to sign for, in words that begin with ``stiffness of AXIS``."""


TERMINAL, ANSWERS, PAGE, SOCKET, ANYBODY = "terminal", "answers", "page", "socket", "anybody, over ROS"
"""Ways by which an act is requested. PAGE is the page that the test itself has started."""


@dataclass
class Act:
    """One act of the operator, as it was asked for, and what came of it: empty ``refused`` where it was done."""

    time: str
    act: str
    arguments: Data = field(default_factory=dict)
    result: str = ""
    refused: str = ""
    by: str = ""
    way: str = ""
    """By which it was asked for: terminal, answers, socket or service, and how its sender is known."""
    motion: str = ""
    """What it moves, as it was stated to the operator who cleared it."""
    under_way: bool = False
    """It has begun, and nothing came of it yet: an act that moves the rig is written down before it does."""


@dataclass
class ChecklistAnswer:
    """Answer ``y`` or ``n`` to an ``item`` of the rig file's checklist, and the operator who gave it."""

    time: str
    item: str
    answer: str
    by: str = ""


@dataclass
class Note:
    """Words of the operator."""

    time: str
    text: str
    by: str = ""


@dataclass
class RungRecord:
    """One rung as it was climbed. ``differences`` to the rung before, by name: rms over rms of that one."""

    name: str
    started: str
    host: str = ""
    pace: str = ""
    level: float = 1.0
    time_ratio: float = 1.0
    scenario_hash: str = ""
    offsets_hash: str = ""
    outcome: str = ""
    """As that of a run: finished, held, tripped, failed, interrupted; refused where it never began; empty while it
    is under way."""
    reason: str = ""
    samples: int = 0
    wall_s: float = 0.0
    recording: str = ""
    """Its folder, relative to that of the procedure; empty where nothing was recorded."""
    compared_with: str = ""
    differences: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, dict[str, float]] = field(default_factory=dict)
    """By axis: largest ``displacement`` (m), ``force`` (N) and ``velocity`` (m/s)."""
    remarks: list[str] = field(default_factory=list)
    """Reservations about what it shows: parts that depend on the rate in slow time, bridged samples."""
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    """By axis: the ``displacement`` (m) and ``force`` (N) at which the rung would have been stopped."""
    bridged: int = 0
    """Number of samples for which a Command or a Measurement was not there in time."""
    missed: int = 0
    """Number of periods that the clock of the host has missed."""
    longest_gap: float = 0.0
    """Longest time of missed and bridged periods in a row, s."""
    max_bridge: float | None = None
    """Bound of ``longest_gap``, s; None in records that have none."""
    counts: str = ""
    """Who has said that it counts although it is not valid."""
    inputs: dict[str, str] = field(default_factory=dict)
    """The files that the scenario names, by their places: hash of what each contains."""
    code: str = ""
    """Hash of the code that was armed; what it is made of stands in the record of the procedure."""
    armed_by: list[str] = field(default_factory=list)
    """Names of the persons who armed it: the operator and, with ``two_persons``, the second person."""
    mandate: str = ""
    """Up to version 0.9.0, of a rung h: hash of its mandate."""
    run: int = 0
    """Up to version 0.9.0, of a rung h: number of the run."""

    @property
    def not_valid(self) -> str:
        """Why a rung that ran to its end is not valid: ``not valid: 55 % bridged (at most 2 %)``; else empty."""
        return self._late.not_valid(self.samples) if self.outcome == "finished" else ""

    @property
    def _late(self) -> LateData:
        bound = math.inf if self.max_bridge is None else self.max_bridge
        return LateData(self.bridged, self.missed, self.longest_gap, bound)

    def take_late(self, late: LateData) -> None:
        """Keep the late periods of the rung, with a remark if there are any."""
        self.bridged, self.missed = round(late.bridged), round(late.missed)
        self.longest_gap, self.max_bridge = late.gap, late.max_bridge
        counts = ((self.bridged, "samples were bridged"), (self.missed, "ticks were missed"))
        self.remarks += [f"{count} {words}" for count, words in counts if count]

    @property
    def ending(self) -> str:
        """The outcome, or why the test is not valid: ``not valid: 55 % bridged``."""
        return self._late.ending(self.outcome, self.samples)


@dataclass
class UnloadingRecord:
    """Unloading of the rig: forces (N) before and after, travel (m), by axis; why it was given up, if so.

    ``to`` are the places (m from the zero of the test) to which it was led by displacement, as ``signed`` for.
    """

    time: str
    before: dict[str, float]
    after: dict[str, float]
    travel: dict[str, float]
    given_up: str = ""
    to: dict[str, float] = field(default_factory=dict)
    signed: str = ""


@dataclass
class SpecimenRecord:
    """The specimen and what it has gone through."""

    id: str = ""
    history: list[Data] = field(default_factory=list)
    """Moving rungs so far: date, test, rung, level, and the largest displacement and force by axis."""


@dataclass
class ProcedureRecord:
    """A procedure from its first act on. ``outcome`` is empty as long as it is under way."""

    test_id: str
    scenario: str
    scenario_hash: str
    rig: str = ""
    rig_description: str = ""
    port: str = ""
    operator: str = ""
    specimen: SpecimenRecord = field(default_factory=SpecimenRecord)
    started: str = ""
    ended: str = ""
    outcome: str = ""
    reason: str = ""
    sample: int | None = None
    """Where the test ended, in samples of its last rung."""
    planned: list[str] = field(default_factory=list)
    """Names of the rungs that the operator means to climb."""
    controller: dict[str, str] = field(default_factory=dict)
    """State of the controller as the port tells it: hydraulics, interlock, control mode, active command."""
    deviations: list[str] = field(default_factory=list)
    """Where the procedure was left: rungs that were left out, limits that were signed for."""
    notes: list[Note] = field(default_factory=list)
    checklist: list[ChecklistAnswer] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    offsets_before: OffsetsRecord | None = None
    offsets_after: OffsetsRecord | None = None
    checks: dict[str, AxisChecks] = field(default_factory=dict)
    rungs: list[RungRecord] = field(default_factory=list)
    mandates: list[Data] = field(default_factory=list)
    """Up to version 0.9.0: mandates for runs of rung h, as they were written."""
    unloading: list[UnloadingRecord] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    """With what it is computed: version and commit of the package, hashes of its files and of components of other
    packages, build of the receiver."""
    simulated: str = ""
    """``simulated`` or ``emulated`` where nothing of steel moves behind the port; empty for a rig."""
    rig_kind: str = ""
    """REAL RIG, EMULATED or SIMULATED; empty in a record of 0.9."""
    axis_names: dict[str, str] = field(default_factory=dict)
    """The axes of the scenario as people call them, where the rig file has other names."""

    @property
    def simulation(self) -> str:
        """``simulated``, ``emulated`` or empty; a record that does not tell it has at least the port."""
        return self.simulated or ("simulated" if self.port == "simulator" else "")

    def count(self, rung: RungRecord) -> None:
        """The operator has said that a ``rung`` counts which is not valid."""
        rung.counts = self.operator
        self.deviations.append(f"rung {rung.name}: {rung.ending}: counts by the word of {self.operator}")

    def called(self, axis: str) -> str:
        """``axis`` of the scenario as people call it: ``north (story_1)``."""
        return self.axis_names.get(axis, axis)

    def named(self, words: str) -> str:
        """``words`` with its axes, as ``axes.story_1`` or ``of story_1``, as people call them."""
        for axis, called in self.axis_names.items():
            if called != axis:
                found = rf"(?:\baxes\.|(?<=\bof )){re.escape(axis)}(?!\w|\.\w)"
                words = re.sub(found, called.replace("\\", r"\\"), words)
        return words

    @property
    def ending(self) -> str:
        """The outcome as people read it: that of a test whose last rung is not valid says so."""
        last = self.rungs[-1] if self.rungs else None
        return last.ending if last is not None and self.outcome == "finished" else self.outcome


OK = "ok"
DIFFERS = 0.1
"""Largest difference (rms over rms) of a rung that is called ok; where the ladder ends, a file of answers says."""
REHEARSAL = " to its rehearsal"
"""Behind the names of differences between a rung and its own rehearsal on a simulator."""


def largest(found: Mapping[str, float]) -> float:
    """The largest of the differences, to the own rehearsal where there was one, else to the rung before.

    0 where there are none, inf where one cannot be told.
    """
    own = [value for name, value in found.items() if name.endswith(REHEARSAL)]
    return max((math.inf if math.isnan(value) else value for value in own or found.values()), default=0.0)


def verdict(rung: RungRecord) -> str:
    """``ok``, ``differs``, ``not valid: 55 % bridged``, or how the rung ended where it did not finish."""
    if rung.outcome != "finished":
        return rung.outcome
    return rung.not_valid or ("differs" if largest(rung.differences) > DIFFERS else OK)
