# SPDX-License-Identifier: Apache-2.0
"""Record of a procedure: general data, acts of the operator, offsets, checks and rungs.

``recording/procedure.py`` stores the record next to the recordings of the rungs. Times are ISO 8601 strings with a
UTC offset. Values of axes are mappings from axis name to number, in SI units.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from rths_nodes.core.data import Data
from rths_nodes.loop.timing import LateData

VERIFIED, NOT_VERIFIED, WRONG, SIGNED = "verified", "not verified", "wrong", "signed for"
"""Results of the check of a sign or a scale. SIGNED: not verified, but accepted with the operator's signature."""

TO_SIGN = "the operator has to sign for it"


@dataclass(frozen=True)
class Rung:
    """Rung of the rehearsal ladder, which leads from a run without the rig to the complete test."""

    name: str
    title: str
    words: str
    on_rig: bool
    moves: bool
    """True if the actuators move. An operator must then arm the rung."""


RUNGS = {
    rung.name: rung
    for rung in (
        Rung("a", "embedded", "everything is computed, in one process without ROS", False, False),
        Rung("b", "nodes", "ROS nodes, with a simulator in place of the rig", False, False),
        Rung("c", "computed, not sent", "the rig answers; commands are computed but not sent", True, False),
        Rung(
            "d",
            "moves, force computed",
            "the rig moves, and the force is computed from measurements of the rig",
            True,
            True,
        ),
        Rung("e", "slow time", "factor by which the rig moves more slowly than the structure", True, True),
        Rung("f", "reduced level", "like the complete test, with a fraction of the excitation", True, True),
        Rung("g", "full", "the test", True, True),
    )
}
REDUCED, FULL = ("d", "e", "f"), "g"
"""``REDUCED``: rungs at a reduced level, which must stay below the elastic limit of the specimen. ``FULL``: the
complete test."""


def moves(name: str) -> bool:
    """Return whether the actuators move in the rung ``name``. Rung h exists in records of versions up to 0.9.0."""
    return name == "h" or (name in RUNGS and RUNGS[name].moves)


@dataclass
class AxisOffsets:
    """Mean and rms scatter of displacement (m) and force (N) at rest, and active ``command`` (m; NaN: unknown)."""

    displacement: float
    displacement_scatter: float
    force: float
    force_scatter: float
    command: float
    force_tared: bool = False
    """True if the operator stated that the specimen is unloaded. Forces are then relative to ``force``."""


@dataclass
class OffsetsRecord:
    time: str
    seconds: float
    axes: dict[str, AxisOffsets]
    hash: str
    confirmed: bool = False


@dataclass
class AxisChecks:
    """Results of the small move for one axis. Each sign and scale is VERIFIED, NOT_VERIFIED, WRONG or SIGNED.

    ``stiffness`` (N/m) is the measured value. ``expected``, ``low`` and ``high`` (N/m) come from the rig file.
    ``static_error`` (m) is the command minus the displacement at the end of the move. ``static_error_force`` (N)
    is the change of the force during the move. ``late`` (s) is the delay of the displacement. ``lost_motion`` (m)
    is the travel of the command that does not move the actuator. A value is None if it was not determined.
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
    """Texts for the operator about results that prevent the start of the test."""
    remarks: list[str] = field(default_factory=list)
    static_error: float | None = None
    static_error_force: float | None = None
    late: float | None = None
    lost_motion: float | None = None
    force_loop: str = ""
    """Result of the check of the controller's force loop with a small force. Empty without a force loop."""
    ratios: dict[str, float] = field(default_factory=dict)
    """Measured stiffness divided by expected stiffness, by source of the expectation: specimen or integrator."""
    beside: dict[str, float] = field(default_factory=dict)
    """Change of this axis's force per displacement of another axis, N/m, by name of the other axis. Empty unless
    the specimen couples the axes."""
    damping: float | None = None
    """Viscous damping coefficient, N s/m: velocity-dependent part of the force, divided by the velocity."""
    unlike: list[str] = field(default_factory=list)
    """Deviations that require a signature. Each text begins with ``stiffness of AXIS``."""


TERMINAL, ANSWERS, PAGE, SOCKET, ANYBODY = "terminal", "answers", "page", "socket", "anybody, over ROS"


@dataclass
class Act:
    """Act requested by an operator, and its result. ``refused`` is the reason for a refusal, or empty."""

    time: str
    act: str
    arguments: Data = field(default_factory=dict)
    result: str = ""
    refused: str = ""
    by: str = ""
    way: str = ""
    """Interface of the request (terminal, answers, page, socket or ROS) and identity of the sender."""
    motion: str = ""
    under_way: bool = False
    """True until the result is known. An act that moves the rig is recorded before its motion."""


@dataclass
class ChecklistAnswer:
    time: str
    item: str
    answer: str
    by: str = ""


@dataclass
class Note:
    time: str
    text: str
    by: str = ""


@dataclass
class RungRecord:
    """Record of a rung. ``differences`` are relative rms differences to an earlier rung and to the rehearsal."""

    name: str
    started: str
    host: str = ""
    pace: str = ""
    level: float = 1.0
    time_ratio: float = 1.0
    scenario_hash: str = ""
    offsets_hash: str = ""
    outcome: str = ""
    """Outcome, such as ``finished``; ``refused`` if the rung did not begin, and empty while the rung runs."""
    reason: str = ""
    samples: int = 0
    wall_s: float = 0.0
    recording: str = ""
    """Folder of the recording, relative to the folder of the procedure, or empty without a recording."""
    compared_with: str = ""
    differences: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, dict[str, float]] = field(default_factory=dict)
    """Largest magnitudes of ``displacement`` (m), ``force`` (N) and ``velocity`` (m/s), by axis."""
    remarks: list[str] = field(default_factory=list)
    """Reasons to doubt the result, such as bridged samples or (in slow time) rate-dependent specimens."""
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    """Limits of ``displacement`` (m) and ``force`` (N) in this rung, by axis."""
    bridged: int = 0
    missed: int = 0
    longest_gap: float = 0.0
    """Duration of the longest series of consecutive missed or bridged periods, s."""
    max_bridge: float | None = None
    """Largest ``longest_gap`` of a valid rung, s. None in older records."""
    counts: str = ""
    """Name of the operator who accepted this rung although it is not valid, or empty."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Hashes of the files that the scenario names, by path."""
    code: str = ""
    armed_by: list[str] = field(default_factory=list)
    mandate: str = ""
    run: int = 0
    """``mandate`` and ``run``: hash of the mandate and number of the run, for rung h of versions up to 0.9.0."""

    @property
    def not_valid(self) -> str:
        """Reason why a finished rung is not valid, or empty."""
        return self._late.not_valid(self.samples) if self.outcome == "finished" else ""

    @property
    def _late(self) -> LateData:
        bound = math.inf if self.max_bridge is None else self.max_bridge
        return LateData(self.bridged, self.missed, self.longest_gap, bound)

    def take_late(self, late: LateData) -> None:
        self.bridged, self.missed = round(late.bridged), round(late.missed)
        self.longest_gap, self.max_bridge = late.gap, late.max_bridge
        counts = ((self.bridged, "samples were bridged"), (self.missed, "ticks were missed"))
        self.remarks += [f"{count} {phrase}" for count, phrase in counts if count]

    @property
    def ending(self) -> str:
        return self._late.ending(self.outcome, self.samples)


@dataclass
class UnloadingRecord:
    """Unloading of the rig: forces ``before`` and ``after`` the unloading (N) and ``travel`` (m), by axis.

    ``given_up`` is the reason for abandoning the unloading, or empty. ``to`` contains the final positions (m, from
    the zero of the test) of an unloading by displacement. ``signed`` is the person who accepted these positions.
    """

    time: str
    before: dict[str, float]
    after: dict[str, float]
    travel: dict[str, float]
    given_up: str = ""
    to: dict[str, float] = field(default_factory=dict)
    signed: str = ""


@dataclass
class HeldRecord:
    """State of a held or tripped rig, with its last displacements (m, from the test's zero) and forces (N)."""

    time: str
    state: str
    reason: str
    displacement: dict[str, float]
    force: dict[str, float]


@dataclass
class SpecimenRecord:
    id: str = ""
    history: list[Data] = field(default_factory=list)


@dataclass
class ProcedureRecord:
    """Record of a procedure, stored from the first act on. ``outcome`` is empty until the procedure ends."""

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
    """Number of the last sample in the last rung."""
    planned: list[str] = field(default_factory=list)
    controller: dict[str, str] = field(default_factory=dict)
    """State of the controller as last read by the port: hydraulics, interlock, control mode, active command."""
    deviations: list[str] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    checklist: list[ChecklistAnswer] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)
    offsets_before: OffsetsRecord | None = None
    offsets_after: OffsetsRecord | None = None
    checks: dict[str, AxisChecks] = field(default_factory=dict)
    rungs: list[RungRecord] = field(default_factory=list)
    mandates: list[Data] = field(default_factory=list)
    """Mandates for runs of rung h, written only by versions up to 0.9.0."""
    unloading: list[UnloadingRecord] = field(default_factory=list)
    held: list[HeldRecord] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    """Code and inputs of the test, by name: version and commit, combined hashes of files, and receiver build."""
    simulated: str = ""
    """``simulated`` or ``emulated`` if the port has no real actuators, empty for a real rig."""
    rig_kind: str = ""
    """REAL RIG, EMULATED or SIMULATED. Empty in records of version 0.9."""
    axis_names: dict[str, str] = field(default_factory=dict)
    """Display name of each axis, by its name in the scenario."""
    laboratory: str = ""
    client: str = ""
    commissioning: str = ""

    @property
    def simulation(self) -> str:
        return self.simulated or ("simulated" if self.port == "simulator" else "")

    def count(self, rung: RungRecord) -> None:
        rung.counts = self.operator
        self.deviations.append(f"rung {rung.name}: {rung.ending}, but counts by decision of {self.operator}")

    def rest_of_last(self, advice: str) -> str:
        last = self.held[-1]
        return f"{last.state} since {last.time[11:19]}: {self.shown(last.displacement, last.force)}; {advice}"

    def shown(self, displacement: Mapping[str, float], force: Mapping[str, float]) -> str:
        return "; ".join(
            f"{self.called(axis)} at {1e3 * x:z.3f} mm, {1e-3 * force[axis]:z.3f} kN"
            for axis, x in displacement.items()
        )

    def called(self, axis: str) -> str:
        return self.axis_names.get(axis, axis)

    def named(self, text: str) -> str:
        """Return ``text`` with axis names (``axes.story_1``, ``of story_1``) replaced by display names."""
        for axis, called in self.axis_names.items():
            if called != axis:
                pattern = rf"(?:\baxes\.|(?<=\bof )){re.escape(axis)}(?!\w|\.\w)"
                text = re.sub(pattern, called.replace("\\", r"\\"), text)
        return text

    @property
    def ending(self) -> str:
        last = self.rungs[-1] if self.rungs else None
        return last.ending if last is not None and self.outcome == "finished" else self.outcome


OK = "ok"
DIFFERS = 0.1
"""Largest relative rms difference at which a rung has the verdict ``OK``."""
REHEARSAL = " to its rehearsal"


def largest(differences: Mapping[str, float]) -> float:
    """Return the largest difference (0 if empty, inf for NaN), only to a rehearsal if there is a rehearsal."""
    of_rehearsal = [value for name, value in differences.items() if name.endswith(REHEARSAL)]
    return max(
        (math.inf if math.isnan(value) else value for value in of_rehearsal or differences.values()), default=0.0
    )


def verdict(rung: RungRecord) -> str:
    if rung.outcome != "finished":
        return rung.outcome
    return rung.not_valid or ("differs" if largest(rung.differences) > DIFFERS else OK)
