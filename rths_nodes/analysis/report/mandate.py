# SPDX-License-Identifier: Apache-2.0
"""Report on runs under a mandate: its terms, how the runs converged, the drift of the specimen, what it says."""

from __future__ import annotations

from rths_nodes.analysis.iteration.convergence import HISTORY
from rths_nodes.analysis.report.procedure import Part, grid, moment
from rths_nodes.analysis.units import DASH, KN, MM, PERCENT, rounded
from rths_nodes.core.data import Data
from rths_nodes.procedure.mandate import FIRST, RUNG, SOFTER, WITHIN
from rths_nodes.procedure.records import MandateRecord, ProcedureRecord, RungRecord

_BOUNDS = (
    ("command", MM, "command, mm"),
    ("velocity", MM, "velocity, mm/s"),
    ("displacement", MM, "displ., mm"),
    ("force", KN, "force, kN"),
)


def parts(record: ProcedureRecord) -> list[Part]:
    """Return what the mandates of a test have come to; nothing where there was none."""
    return [part for each in record.mandates for part in _parts(record, each)]


def _parts(record: ProcedureRecord, mandate: MandateRecord) -> list[Part]:
    identified = mandate.identified
    late = ", ".join(
        f"{record.called(axis)} {rounded(s, 1e3)} ms" for axis, s in identified.get("late_s", {}).items()
    )
    facts = {
        "Mandate": mandate.hash,
        "Armed": f"{moment(mandate.time)}, by {mandate.by or DASH}",
        "Mode": "targets and commands, by whole histories" if mandate.mode == HISTORY else "commands, by tracking",
        "First run": f"rung {FIRST}, scenario {mandate.first}",
        "Rig, as the first run tells it": (
            f"late by {late or DASH}; learned from up to {rounded(identified.get('learned_to_hz'))} Hz, "
            f"known up to {rounded(identified.get('known_to_hz'))} Hz"
        ),
        "Over": mandate.ended or "not yet",
    }
    bounds = [
        [record.called(axis), *(rounded(most.get(name), factor) for name, factor, _ in _BOUNDS)]
        for axis, most in mandate.bounds.items()
    ]
    heads = ("No run beyond", *(words for *_, words in _BOUNDS))
    words = (_came_to(mandate), _LAST) if len(mandate.rows) > 1 else (_came_to(mandate),)
    return [
        Part("Runs under a mandate", facts, grid=grid(heads, bounds)),
        Part(
            "Convergence, and drift of the specimen",
            words=words,
            grid=grid(_heads(record, mandate), [_row(record, mandate, row) for row in mandate.rows]),
        ),
        Part("Limits of validity of what was iterated", items=_validity(record, mandate)),
    ]


_LAST = "The curves of this page are those of the last run, where it is the last rung that moved."


def _came_to(mandate: MandateRecord) -> str:
    errors = [row.get("error") for row in mandate.rows]
    told = f"{rounded(errors[0])} % in the first run" if errors else "not known"
    if len(errors) < 2:
        return f"No run was made under it. The error was {told}."
    agreed = "agreed" if mandate.converged else "did not agree"
    return (
        f"The error, rms below the end of what is learned from, in % of the rms of the target, was {told} and is "
        f"{rounded(errors[-1])} % in the last one: the test {agreed}."
    )


def _heads(record: ProcedureRecord, mandate: MandateRecord) -> list[str]:
    axes = [record.called(axis) for axis in mandate.bounds]
    return [
        *("Run", "Outcome", "error, %", "noise, %", "residual, %", "missed, mm"),
        *(f"specimen of {axis}, %" for axis in axes),
        *("command", "velocity", "force"),
        *(f"force of {axis}, expected, kN" for axis in axes),
        "Hash",
    ]


def _row(record: ProcedureRecord, mandate: MandateRecord, row: Data) -> list[str]:
    """Row of a run; command, velocity and force in parts of those in the first one."""
    answer, expected = row.get("answer") or {}, row.get("expected") or {}
    rung = next((each for each in record.rungs if each.recording and each.recording == row.get("recording")), None)
    return [
        f"{row.get('number')} ({FIRST if row.get('number') == 1 else RUNG})",
        _ended(row, rung),
        *(rounded(row.get(name)) for name in ("error", "noise", "residual")),
        rounded(row.get("missed"), MM),
        *(rounded(answer.get(axis), PERCENT) for axis in mandate.bounds),
        *(rounded(row.get(name)) for name in ("command", "velocity", "force")),
        *(rounded((expected.get(axis) or {}).get("force"), KN) for axis in mandate.bounds),
        str(row.get("scenario_hash") or DASH),
    ]


def _ended(row: Data, rung: RungRecord | None) -> str:
    outcome = str(row.get("outcome") or DASH)
    signed = next((words for words in (rung.remarks if rung else ()) if words.startswith("armed by ")), "")
    return f"{outcome}, {signed}" if signed else outcome


def _validity(record: ProcedureRecord, mandate: MandateRecord) -> tuple[str, ...]:
    learned = rounded(mandate.identified.get("learned_to_hz"))
    history = (
        "Agreement says that equilibrium and compatibility hold with the measured force. It says nothing of a "
        "load cell that is wrong by a factor, or of a late force that nobody declared."
    )
    tracking = (
        "The targets are those of the first run: how the structure would answer to the forces of the last run is "
        "not in them."
    )
    return (
        "What repeats must be repeatable. A specimen that yields, wears or heats is another one in the next run; "
        f"the mandate ends where an axis gives {PERCENT * SOFTER:g} % less force to the same motion than in the "
        "first run, and sees nothing else of it.",
        "What the specimen lost within the first run is not seen: drift counts from the whole of that run.",
        f"Nothing is learned from errors above {learned} Hz; what is left there is not in the error of the table.",
        "The rehearsals took the rig as the first run tells it, axis by axis, and each specimen as a spring, a "
        "dashpot and a mass: what is beside that in the rig is in no expected number.",
        f"No run went beyond {WITHIN:g} times the first one: that the rig would do as well beyond is not shown.",
        history if mandate.mode == HISTORY else tracking,
        *((f"The rig was {record.simulation}: nothing of steel has moved.",) if record.simulation else ()),
    )
