# SPDX-License-Identifier: Apache-2.0
"""The way of a test through its acts: which one comes next, and how the test ends.

A file of answers follows it; a terminal proposes it.
"""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.app.procedure.procedure_runner import ProcedureRunner, now
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.records import NOT_VERIFIED, RUNGS, SIGNED, VERIFIED, WRONG
from rths_nodes.recording.records import RecordingError

ENDED = (State.FINISHED,)


class ActSequence:
    """The next act of ``runner``; ``unload()`` tells whether the specimen is to be unloaded at the end."""

    def __init__(self, runner: ProcedureRunner, unload: Callable[[], bool]) -> None:
        self.runner, self.unload = runner, unload

    def next(self) -> str:
        """The name of the act that comes next; empty where the test is over."""
        runner = self.runner
        state, rung = runner.state, runner.next_rung
        if state in ENDED:
            return ""
        if not rung:
            return self._ending(state)
        if not RUNGS[rung].on_rig:
            return "rehearse"
        if state is State.IDLE:
            return "connect"
        if state is State.TRIPPED:
            return "finish" if runner.possible()["acknowledge"] else "acknowledge"
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
            return "finish"  # nobody can sign for it: the rig has to be mended first
        return "position" if self.runner.possible()["sign_for"] else "sign_for"

    def wrong(self) -> list[str]:
        """Return the findings of the small move that bar the way, in words."""
        return [words for row in self.runner.record.checks.values() for words in row.findings]


def ended(runner: ProcedureRunner, refused: str, failed: str, stopped: str) -> ExitCode:
    """Write down and return how the test has ended: the last planned rung finished, or why it did not.

    ``refused``, ``failed`` and ``stopped`` say what was in the way, if anything was.
    """
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
    record.outcome, record.reason = code.outcome, reason
    if code is ExitCode.HELD and last is not None and doubt and last.name == record.planned[-1]:
        record.outcome, code = ExitCode.FINISHED.outcome, ExitCode.FAILED  # it ran to its end, and does not count
    record.sample = last.samples if last is not None else None
    record.ended = record.ended or now()
    try:
        runner.write(last=True)
    except RecordingError as error:  # not even the room that was kept is there
        code = ExitCode.FAILED
        record.outcome, record.reason = code.outcome, str(error)
    return code


WORDS = {VERIFIED: "verified", NOT_VERIFIED: "not verified", WRONG: "WRONG", SIGNED: "signed for"}
