# SPDX-License-Identifier: Apache-2.0
"""A test at a terminal, or by answers: proposes acts, asks questions, observes motions."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from signal import SIGINT
from typing import Any, TypeVar

from rich.text import Text

from rths_nodes.app.procedure import act_sequence, screens
from rths_nodes.app.procedure.act_sequence import ENDING, ActSequence
from rths_nodes.app.procedure.answers import REDUCED
from rths_nodes.app.procedure.dialogue import Dialogue, Interrupted
from rths_nodes.app.procedure.ladder import SLOW, Ladder
from rths_nodes.app.procedure.procedure_runner import HEARD, NO, YES, ProcedureRunner
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.loop.interrupts import stop_signals_handled
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import ANSWERS, RUNGS, TERMINAL, RungRecord, largest
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ACTS, CLEAR
from rths_nodes.procedure.arming import two_persons
from rths_nodes.procedure.machine import AT_REST, Seen
from rths_nodes.recording.records import RecordingError

INTERRUPTED = "the operator has interrupted the test"
LOOK_S = 0.05
"""Polling interval of motion, keys and signals, s."""
SAME_KEY_S = 0.2
"""Time within which signals are one request, s: a frightened operator presses twice."""
TYPED = {name: act for act in HEARD if act != "resume" for name in (act[0], act)}
"""Words accepted during a motion; other input is a note."""

T = TypeVar("T")
Progress = Callable[[str], AbstractContextManager[Any]]


class OperatorInput:
    """Shows ``progress`` of lasting work by name, and handles signals and keys of the operator.

    ``leads``: the operator chooses each act; a stop then ends the motion, not the test.
    """

    def __init__(self, runner: ProcedureRunner, dialogue: Dialogue, progress: Progress, leads: bool) -> None:
        self.runner, self._dialogue, self._progress, self._leads = runner, dialogue, progress, leads
        self._say = dialogue.say
        self.stopped = ""
        """Reason to end the test, or empty."""
        self._signals: list[int] = []
        self._heard_at = -SAME_KEY_S
        self._answered, self._warned = 0, ""
        self._done, self._hears = (0, 0), dialogue.attended
        runner.watch.progress = self.far

    def meanwhile(self, name: str, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread with progress and operator input, and return its result."""
        found: Data = {}

        def run() -> None:
            try:
                found["result"] = work()
            except BaseException as error:
                found["error"] = error

        del self._signals[: self._answered]
        self._answered, self._done = 0, (0, 0)
        with self._progress(name) as bar, self.runner.session.act():
            context = copy_context()  # the thread belongs to the same act: one stop ends both
            thread = threading.Thread(target=context.run, args=(run,), name=name, daemon=True)
            self.runner.watch.starting = bar.starting
            thread.start()
            while thread.is_alive():
                self._attend()
                if self._done[1]:
                    bar(*self._done)
                self._warn()
                thread.join(LOOK_S)
        if "error" in found:
            raise found["error"]
        result: T = found["result"]
        return result

    def _warn(self) -> None:
        """Print the warning output and the seconds left until the motion, once per second."""
        text = self.runner.session.warning.text
        if text and text != self._warned:
            self._say(text)
        self._warned = text

    def far(self, sample: int, samples: int) -> None:
        self._done = sample, samples

    def _attend(self) -> None:
        if len(self._signals) > self._answered:
            self._answered = len(self._signals)
            first = self._answered == 1 and self._signals[0] == SIGINT
            if self._answered > 2:
                raise KeyboardInterrupt
            self._interrupt("hold" if first and self._can_hold() else "stop", self._signals[-1] != SIGINT)
        if self._hears and select.select([sys.stdin], [], [], 0.0)[0]:
            typed = os.read(sys.stdin.fileno(), 4096).decode(errors="replace")
            if not typed:
                self._hears = False
                self._interrupt("stop", ends=True)
            for line in typed.splitlines():
                self._heard(line.strip())

    def _heard(self, line: str) -> None:
        act = TYPED.get(line.lower(), "note" if line else "")
        if line in ("r", "resume"):
            self._say_held()
        elif line == CLEAR:
            self._interrupt("resume", clear=CLEAR)
        elif act == "note":
            self._attempt("note", text=line)
        elif act:
            self._interrupt(act)

    def _can_hold(self) -> bool:
        return self._dialogue.attended and not self.runner.possible()["hold"]

    def _say_held(self) -> None:
        self._say(f"MOTION: resume: {self.runner.clearing.motion('resume')}")
        self._say(f"held: type {CLEAR} to resume this motion, s to stop")

    def _interrupt(self, act: str, ends: bool = False, **given: str) -> None:
        """Hold, resume or stop the work; a stop ``ends`` the test unless the operator leads it."""
        if act == "stop" and (ends or not self._leads):
            self.stopped = self.stopped or INTERRUPTED
        if act == "resume":
            self._signals.clear()
            self._answered = 0
        given |= {"reason": f"the operator has asked to {act}"} if "reason" in ACTS[act].arguments else {}
        if act == "resume":  # resume may wait for a warning, during which stops must work
            resume = partial(copy_context().run, self._attempt, act, **given)
            threading.Thread(target=resume, name=act, daemon=True).start()
            return
        self._attempt(act, **given)
        if act == "hold" and self.runner.can_resume:
            self._say_held()

    def _attempt(self, act: str, **arguments: Any) -> None:
        try:
            self.runner.do(act, way=TERMINAL, **arguments)
        except (ConfigError, RecordingError) as error:
            self._say(str(error))

    def signal(self, number: int) -> None:
        """Handle a stop signal: it stops a motion; at a question it ends the test in order."""
        if self._dialogue.asking:
            raise Interrupted(INTERRUPTED)
        if time.monotonic() - self._heard_at > SAME_KEY_S or not self._signals:
            self._heard_at = time.monotonic()
            self._signals.append(number)


class Console:
    """Leads one operator through a test, from the first act to its end.

    ``progress`` shows the progress of a rung by name; ``leads``: the operator chooses each act, not the file.
    """

    def __init__(self, runner: ProcedureRunner, dialogue: Dialogue, progress: Progress, leads: bool) -> None:
        self.runner, self._dialogue, self._leads = runner, dialogue, leads
        self._acts = ActSequence(runner, self._unloads)
        runner.watch.changed = self._changed
        self._input = OperatorInput(runner, dialogue, progress, leads)
        self._meanwhile = self._input.meanwhile
        self._refused = self._failed = ""
        self._last = State.IDLE

    def _say(self, shown: object) -> None:
        self._dialogue.say(self.runner.record.named(shown) if isinstance(shown, str) else shown)

    def run(self) -> ExitCode:
        """Do the acts to the end of the test; in any case leave the rig safe and the record written."""
        with stop_signals_handled(self._input.signal):
            try:
                self._walk_on()
            except Interrupted as left:
                self._input.stopped = self._input.stopped or str(left)
            except KeyboardInterrupt:
                self._input.stopped = self._input.stopped or INTERRUPTED
            except ConfigError as error:
                self._refused = str(error)
                self._say(self._refused)
            except (RecordingError, PortError) as error:
                self._failed = str(error)
                self._say(self._failed)
            except Exception as error:
                self._failed = f"{type(error).__name__}: {error}"
                raise
            finally:
                code = self._leave()
        return code

    def _leave(self) -> ExitCode:
        runner = self.runner
        try:
            if not runner.possible()["finish"]:
                self._perform("finish")
        except Exception as error:  # the rig is closed all the same
            self._failed = self._failed or f"finish: {error}"
        finally:
            runner.session.close()
        return act_sequence.ended(runner, self._refused, self._failed, self._input.stopped)

    def _walk_on(self) -> None:
        while not self._input.stopped:
            seen = self.runner.session.seen  # answers are valid until the next stop
            if not (act := self._acts.next()):
                return
            if self._leads and not self._proposed(act, seen):
                continue
            if not self._do(act, "", seen):
                return

    def _proposed(self, act: str, seen: Seen) -> bool:
        """Show the possible acts and read the operator's choice; True if it is the proposed act."""
        runner = self.runner
        reason = runner.session.reason
        words = f"\n{runner.record.rig_kind}, state: {runner.state.name.lower()}{f' ({reason})' if reason else ''}"
        lost = runner.state is State.TRIPPED
        self._say(Text(runner.record.named(words), style="bold red") if lost else words)
        if why_not := runner.possible().get(act, ""):
            self._say(f"{act} is not possible now: {why_not}")
        rung = runner.next_rung
        words = f", for rung {rung} ({RUNGS[rung].title})" if rung and act not in ENDING else ""
        moves = bool(runner.clearing.motion(act))
        proposal = f"next: {act}{words}: it moves the rig, type {act}" if moves else f"Enter: {act}{words}"
        typed = self._dialogue.line(f"act ({proposal}; ?: all): ")
        name, _, rest = typed.partition(" ")
        if typed == act or not (typed or moves):
            return True
        if not typed:
            self._say(f"nothing has moved: Enter starts no motion; type {act}")
        elif name in ("?", "help"):
            self._say(screens.acts(runner.possible(), act))
        elif name not in ACTS:
            self._say(f"unknown act {name!r}; known: {', '.join(ACTS)}")
        else:
            self._do(name, rest, seen)
        return False

    def _do(self, act: str, rest: str, seen: Seen) -> bool:
        """Do an act with its questions; False if the sequence ends. The operator is shown refusals."""
        self._dialogue.typed = False
        try:
            with self.runner.session.act(act, seen):  # one stop ends the act and its questions
                return bool(getattr(self, f"_do_{act}", self._plain)(act, rest))
        except ConfigError as error:
            if not self._leads:
                raise
            self._say(f"refused: {error}")
            return True

    def _plain(self, act: str, rest: str) -> bool:
        arguments = {name: rest for name in ACTS[act].arguments[:1] if rest and name != "clear"}
        if words := self._perform(act, **arguments):
            self._say(words)
        return True

    def _do_acknowledge(self, act: str, rest: str) -> bool:
        """Acknowledge a trip, only for an operator at a terminal."""
        return self._leads and self._plain(act, rest)

    def _do_rehearse(self, act: str, rest: str) -> bool:
        return self._rung(act, self.runner.next_rung, {"rung": rest} if rest else {})

    def _do_run(self, act: str, rest: str) -> bool:
        return self._rung(act, self.runner.next_rung, {})

    def _rung(self, act: str, rung: str, arguments: dict[str, object]) -> bool:
        words = self._perform(act, f"rung {rung}", **arguments)
        record = self.runner.record
        self._say(screens.rungs(record) if self._leads else words)
        last = record.rungs[-1]
        for remark in last.remarks:
            self._say(f"note: {remark}")
        if last.outcome != "finished":
            if self._leads:
                self._say(words)
            return self._leads
        if last.not_valid and not self._counts(last):
            return self._leads
        difference = largest(last.differences)
        if self._dialogue.goes_on(last.name, difference):
            return True
        bound = self._dialogue.answers.largest_difference[last.name]
        words = f"rung {last.name} differs by {difference:.3g} (rms over rms), more than {bound:g}"
        self._say(words)
        if not self._leads:
            self._input.stopped = words
        return self._leads

    def _counts(self, last: RungRecord) -> bool:
        """Ask whether a rung that is not valid counts; without an answer an answers file ends there."""
        if self._dialogue.counts(last.name, last.ending):
            self.runner.record.count(last)
            self.runner.write()
            return True
        if not self._leads:
            self._input.stopped = f"rung {last.name}: {last.ending}"
        return False

    def _do_take_offsets(self, act: str, rest: str) -> bool:
        seconds = self._dialogue.value("offsets_seconds", 2.0)
        self._perform(act, seconds=seconds)
        if (found := self.runner.taken) is not None:
            self._say(screens.offsets(found.record(), self.runner.ladder.scenario))
        return True

    def _do_confirm_offsets(self, act: str, rest: str) -> bool:
        found, ask = self.runner.taken, self._dialogue
        if found is None:
            raise ConfigError("confirm_offsets: none were taken")
        if not ask.agreed("confirm_offsets", f"confirm these offsets ({found.hash})?"):
            self.runner.taken = None
            return self._leads
        for words in self.runner.loads_at_rest():
            self._say(words)
        unloaded = ask.agreed("unloaded", "does the specimen carry nothing now, so that its force is tared?")
        self._perform(act, hash=found.hash, unloaded=unloaded)
        return True

    def _do_checklist(self, act: str, rest: str) -> bool:
        for item in self.runner.clearing.to_answer:
            answer = YES if self._dialogue.confirms(item) else NO
            self._perform(act, item=item, answer=answer)
        left = self.runner.clearing.unconfirmed
        if left and not self._leads:
            self._input.stopped = f"checklist of the rig file: not confirmed: {'; '.join(left)}"
        return self._leads or not left

    def _do_check(self, act: str, rest: str) -> bool:
        self._perform(act)
        self._say(screens.checks(self.runner.record))
        remarks = [words for row in self.runner.record.checks.values() for words in row.remarks]
        for words in (*remarks, *self._acts.wrong()):
            self._say(words)
        if self._acts.wrong() and not self._leads:
            self._refused = "; ".join(self._acts.wrong())
            return False
        return True

    def _do_sign_for(self, act: str, rest: str) -> bool:
        wanting = self.runner.session.clearance.wanting()
        meant = [each for each in wanting if rest in ("", each.name, each.words)]
        if not meant:
            self._perform(act, what=rest)  # which is refused, with the names
        for each in meant:
            if not self._dialogue.signs(self.runner.record.named(each.words), each.called):
                if self._leads:
                    return True
                raise ConfigError(f"sign_for: nobody signs for: {each.words} ({each.name})")
            self._perform(act, what=each.name)
        return True

    def _do_unload(self, act: str, rest: str) -> bool:
        """Unload; with a position by displacement, which the operator signs for at the terminal."""
        if not rest:
            return self._plain(act, rest)
        words = f"unload by displacement, to {rest} m from the zero of the test, whatever the force is"
        if not self._dialogue.yes(f"{words}: do you sign for it?"):
            self._say("not unloaded")
            return True
        self._say(self._perform(act, to=rest, signed=self.runner.record.operator or "the operator"))
        return True

    def _do_arm(self, act: str, rest: str) -> bool:
        runner, rung = self.runner, rest or self.runner.next_rung
        if rung not in runner.ladder.planned:
            raise ConfigError(f"arm: rung {rung or 'none left'}: is not planned")
        complete(runner.ladder, self._dialogue, rung)
        ladder, moves = runner.ladder, RUNGS[rung].moves
        step, found = ladder.step(rung), runner.session.offsets
        offsets_hash = found.hash if found is not None else ""
        shown = moves and (self._leads or rung not in self._dialogue.answers.arm)
        if shown or (moves and rung in REDUCED):
            self._meanwhile(f"rehearsal of rung {rung}", lambda: ladder.expected(rung, self._input.far))
        if shown:
            self._say(screens.armed(step, runner.ladder, offsets_hash))
        if moves and not self._dialogue.arms(rung, step.hash, offsets_hash):
            self._say("not armed")
            return self._leads
        what = {"rung": rung, "scenario_hash": step.hash, "offsets_hash": offsets_hash}
        if two_persons(rung, ladder.scenario):
            what["second"] = str(self._dialogue.value("second"))
        self._say(self._perform(act, **what))
        return True

    def _perform(self, act: str, shown: str = "", /, **arguments: Any) -> str:
        """Do an act; a lasting one in a thread, while the operator can intervene."""
        motion = self.runner.clearing.motion(act, arguments)
        if motion and not self.runner.possible()[act]:  # otherwise refused without a question
            arguments["clear"] = self._dialogue.clear(act, motion, self._ended)
        way = TERMINAL if self._leads or self._dialogue.typed else ANSWERS
        if not ACTS[act].lasting:
            return self.runner.do(act, way=way, **arguments)
        return str(self._meanwhile(shown or act, lambda: self.runner.do(act, way=way, **arguments)))

    def _ended(self) -> str:
        session = self.runner.session
        return session.stopped or (session.reason if session.state is State.TRIPPED else "")

    def _changed(self, state: State, reason: str) -> None:
        """Print at once why a motion stops early, and in red why the rig is lost at rest."""
        at_rest, self._last = self._last in AT_REST, state
        if state is State.STOPPING and reason:
            self._say(f"{state.name.lower()}: {reason}")
        elif state is State.TRIPPED and at_rest:
            below = "\n" if self._dialogue.asking else ""  # the question is on this line
            self._say(Text(self.runner.record.named(f"{below}TRIPPED: {reason}"), style="bold red"))

    def _unloads(self) -> bool:
        given = self._dialogue.answers.moves("unload")
        return self._leads if given is None else given


def complete(ladder: Ladder, dialogue: Dialogue, rungs: Iterable[str]) -> None:
    """Ask for the level and the time ratio if ``rungs`` need them and nothing has set them."""
    needed = set(rungs)
    if ladder.level is None and needed.intersection(REDUCED):
        ladder.level = float(dialogue.value("level", ladder.proposed_level()))
    if ladder.ratio is None and SLOW in needed:
        ladder.ratio = int(dialogue.value("time_ratio", 10))
