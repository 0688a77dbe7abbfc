# SPDX-License-Identifier: Apache-2.0
"""Sequence of the acts of a test, for answers files and as a proposal at the terminal; outcome of a test."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.app.procedure.procedure_runner import ProcedureRunner, now
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import NOT_VERIFIED, RUNGS, SIGNED, VERIFIED, WRONG
from rths_nodes.loop.supervision.states import State
from rths_nodes.recording.records import RecordingError

ENDED = (State.FINISHED,)
ENDING = ("unload", "finish")
"""Acts at the end of a test, of no rung."""


class ActSequence:
    """Next act of ``runner``; ``unload()`` returns whether to unload the specimen at the end."""

    def __init__(self, runner: ProcedureRunner, unload: Callable[[], bool]) -> None:
        self.runner, self.unload = runner, unload

    def next(self) -> str:
        """Return the name of the next act; empty at the end of the test."""
        runner = self.runner
        state, rung = runner.state, runner.next_rung
        if state in ENDED:
            return ""
        if not rung:
            return self._ending(state)
        if state is State.IDLE:
            return "connect" if RUNGS[rung].on_rig else "rehearse"
        if state is State.TRIPPED:
            return "finish" if runner.possible()["acknowledge"] else "acknowledge"
        if not RUNGS[rung].on_rig:
            return self._ending(state)  # the rig is connected: no rehearsal is possible any more
        if runner.session.offsets is None:
            return "take_offsets" if runner.taken is None else "confirm_offsets"
        return {State.ARMED: "run", State.POSITIONED: "arm"}.get(state) or self._towards_start()

    def _ending(self, state: State) -> str:
        if state is State.IDLE:
            return ""
        wanted = not self.runner.record.unloading and self.unload()
        return "unload" if wanted and state is State.HELD else "finish"

    def _towards_start(self) -> str:
        if not self.runner.record.checks:
            return "checklist" if self.runner.clearing.unconfirmed else "check"
        if self.wrong():
            return "finish"  # cannot be signed for: the rig has to be repaired
        return "position" if self.runner.possible()["sign_for"] else "sign_for"

    def wrong(self) -> list[str]:
        return [words for row in self.runner.record.checks.values() for words in row.findings]


def outcome(
    runner: ProcedureRunner, refused: str = "", failed: str = "", stopped: str = ""
) -> tuple[ExitCode, str]:
    """Return the outcome and, unless finished, its reason: ``refused``, ``failed`` or ``stopped``."""
    record = runner.record
    last = record.rungs[-1] if record.rungs else None
    doubt = last.ending if last is not None and last.not_valid and not last.counts else ""
    code, reason = ExitCode.FINISHED, ""
    failed = failed or runner.unwritten
    if failed:
        code, reason = ExitCode.FAILED, failed
    elif last is not None and last.outcome in (ExitCode.TRIPPED.outcome, ExitCode.FAILED.outcome):
        code = ExitCode.TRIPPED if last.outcome == ExitCode.TRIPPED.outcome else ExitCode.FAILED
        reason = f"rung {last.name}: {last.reason}"
    elif runner.tripped:
        code, reason = ExitCode.TRIPPED, runner.tripped
    elif refused and not stopped:
        code, reason = ExitCode.REFUSED, refused
    elif last is not None and last.outcome not in ("finished", "held"):
        code, reason = ExitCode.FAILED, f"rung {last.name}: {last.reason}"
    elif stopped or runner.next_rung:
        held = f"rung {last.name}: {last.reason}" if last is not None and last.outcome == "held" else ""
        held = f"rung {last.name}: {doubt}" if last is not None and doubt else held
        code = ExitCode.HELD
        reason = stopped or held or f"the operator ended the test before rung {runner.next_rung}"
    if code is ExitCode.HELD and last is not None and doubt and last.name == record.planned[-1]:
        code = ExitCode.NOT_VALID
    return code, reason


def ended(runner: ProcedureRunner, refused: str, failed: str, stopped: str) -> ExitCode:
    """Record and return the outcome."""
    record = runner.record
    last = record.rungs[-1] if record.rungs else None
    code, record.reason = outcome(runner, refused, failed, stopped)
    record.outcome = code.recorded
    record.sample = last.samples if last is not None else None
    record.ended = record.ended or now()
    try:
        runner.write(last=True)
    except RecordingError as error:  # not even the reserved space exists
        code = ExitCode.FAILED
        record.outcome, record.reason = code.outcome, str(error)
    return code


WORDS = {VERIFIED: "verified", NOT_VERIFIED: "not verified", WRONG: "WRONG", SIGNED: "signed for"}
