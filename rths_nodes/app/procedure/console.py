# SPDX-License-Identifier: Apache-2.0
"""Operator of a test, at a terminal or with an answers file: questions, proposed acts, stops during motions."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from rths_nodes.analysis.units import KN, MM, PERCENT, plain
from rths_nodes.app.procedure.answers import NO, TYPE_CLEAR, YES, Answers
from rths_nodes.app.procedure.operator_socket import LOOK_S
from rths_nodes.app.procedure.procedure_runner import SLOW, Ladder, ProcedureRunner, Step, next_act
from rths_nodes.app.streams import Printer
from rths_nodes.core.errors import ConfigError, PortError
from rths_nodes.core.parameters import declared
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import number_in
from rths_nodes.loop.interrupts import REQUESTS, begun, stop_signals_handled
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import ANSWERS, REDUCED, REHEARSAL, RUNGS, TERMINAL, WRONG, largest, verdict
from rths_nodes.loop.scenario import rehearsal
from rths_nodes.loop.scenario.schema import Scenario, axis_names, label, rig_kind
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.machine import AT_REST, ActRefused, Seen
from rths_nodes.procedure.rungs import two_persons
from rths_nodes.procedure.session import ACTS, CLEAR, HEARD
from rths_nodes.recording.records import RecordingError

if TYPE_CHECKING:
    from rths_nodes.loop.procedure_record import OffsetsRecord, ProcedureRecord, RungRecord

NEXT = {
    State.HELD: "next: position, unload, finish, or resume if a rung is held",
    State.TRIPPED: "next: find the cause of the trip, then acknowledge the trip",
}
"""Advice on the next step, by the state of the rig after a motion."""
INTERRUPTED = "the operator has interrupted the test"
SAME_KEY_S = 0.2
"""Interval within which signals (e.g. Ctrl-C pressed twice) count as one request, s."""
TYPED = {name: act for act in HEARD if act != "resume" for name in (act[0], act)}
"""Acts by the word that the operator types during a motion. Any other input is a note."""
NAMED_BY = 6
"""Number of characters of the hash to type when arming a rung."""
UNITS = {"displacement": (MM, "mm"), "force": (KN, "kN")}

T = TypeVar("T")
Progress = Callable[[str], AbstractContextManager[Any]]
Level = float | None
Work = Callable[[], Level]


def typed(question: str, ended: Callable[[], str] = str) -> str:
    """Print the question, and return the typed line.

    Raises ActRefused if ``ended`` returns a reason before a line is typed at a terminal. The wait polls, because
    a signal does not always interrupt a blocking read.
    """
    print(question, end="", file=sys.stderr, flush=True)
    while sys.stdin.isatty() and not select.select([sys.stdin], [], [], 0.1)[0]:
        if reason := ended():
            raise ActRefused(f"\n{reason}")
    return input()


class Console:
    """Conducts a test with ``answers``, and asks the operator with ``ask(question)`` for missing answers.

    The answers must be complete if ``ask`` is None. Acts of other programs come over a socket (``served.py``).
    """

    def __init__(self, answers: Answers, ask: Callable[[str], str] | None, say: Callable[[object], None]) -> None:
        self.answers, self._ask, self._printer = answers, ask, Printer(say)
        self._record: ProcedureRecord | None = None
        self.attended, self.leads = ask is not None, False
        self.asking = self._typed = self._over = False
        """``asking`` is true during a question. ``_typed`` is true once the operator has typed during the act."""
        self.stopped = self.refused = ""
        self._signals: list[int] = []
        self._received_at, self._answered, self._warned = -SAME_KEY_S, 0, ""
        self._done, self._listens, self._last = (0, 0), self.attended, State.IDLE

    def say(self, shown: object) -> None:
        """Print a table or a text. After :meth:`attach`, texts name the axes by their display names."""
        self.tell(shown).result()

    def tell(self, shown: object) -> Future[None]:
        """Print like :meth:`say`, but do not wait: a stalled terminal must not delay the rig or a stop."""
        record = self._record
        return self._printer.say(record.named(shown) if record is not None and isinstance(shown, str) else shown)

    def line(self, question: str) -> str:
        return self.exact_line(question).strip()

    def exact_line(self, question: str, ended: Callable[[], str] = str) -> str:
        """Return the typed line. Raises KeyboardInterrupt without a terminal, and the errors of :func:`typed`."""
        if self._ask is None:
            raise KeyboardInterrupt(f"no terminal is available for the question: {question}")
        self.asking = self._typed = True
        try:
            return typed(question, ended) if self._ask is typed else self._ask(question)
        except (EOFError, OSError):
            raise KeyboardInterrupt("the terminal is closed") from None
        finally:
            self.asking = False

    def value(self, key: str, proposed: object = None) -> Any:
        """Return the answer to ``key`` from the file or from the operator. An empty line accepts ``proposed``."""
        answer = getattr(self.answers, key)
        if answer is not None and answer != ():
            return answer
        spec = declared(Answers)[key]
        unit = f" [{spec.unit}]" if spec.unit else ""
        default = f" ({proposed})" if proposed is not None else ""
        while True:
            line = self.line(f"{key}: {spec.doc}{unit}{default}: ")
            if not line and proposed is not None:
                return proposed
            try:
                return getattr(from_data(Answers, {key: line if spec.kind == "text" else number_in(line)}), key)
            except ConfigError as error:
                self.say(str(error))

    def agreed(self, key: str, question: str) -> bool:
        answer = getattr(self.answers, key)
        return bool(answer) if answer is not None else self.yes(question)

    def yes(self, question: str) -> bool:
        while True:
            line = self.line(f"{question} [y/N]: ").lower()
            if line in ("y", "yes", "n", "no", ""):
                return line.startswith("y")
            self.say("y or n")

    def clear(self, act: str, motion: str) -> str:
        """Return CLEAR if ``act`` may start the ``motion``, else another text.

        If the file has no answer, print the motion and return the typed line. Raises the errors of :func:`typed`.
        """

        def ended() -> str:
            session = self.runner.session
            reason = session.stopped or (session.reason if session.state is State.TRIPPED else "")
            return f"{act}: {reason}" if reason else ""

        answer = self.answers.moves(act)
        if answer is not None or self._ask is None:
            return CLEAR if answer else ""
        self.say(f"MOTION: {act}: {motion}")
        if sys.stdin.isatty():
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
        return self.exact_line(TYPE_CLEAR, ended)

    def ends(self, reason: str = "") -> None:
        """End the test for ``reason`` if an answers file controls it. Do nothing if an operator controls it."""
        if not self.leads:
            self.stopped, self._over = self.stopped or reason, True

    def attach(self, runner: ProcedureRunner, progress: Progress, leads: bool) -> None:
        """Attach the test of ``runner``. If the operator ``leads``, a stop ends the motion but not the test."""

        def far(sample: int, samples: int) -> None:
            self._done = sample, samples

        self.runner, self._record, self._progress, self.leads = runner, runner.record, progress, leads
        runner.changed, runner.ladder.progress = self._changed, far

    def run(self, walk: Callable[[], None] | None = None, close: Callable[[], None] = lambda: None) -> ExitCode:
        """Conduct the test with ``walk()`` (default: perform the acts typed at the terminal), then finish it.

        ``close`` is called at the end. A stalled terminal cannot delay this call.
        """
        failed, finish = "", self.perform
        if walk is not None:
            self.attended, finish = False, partial(self.runner.do, way=TERMINAL)
        with stop_signals_handled(self._signal):
            try:
                for note in self.answers.notes:
                    self.runner.do("note", way=ANSWERS, text=note)
                (walk or self._walk_on)()
            except KeyboardInterrupt as left:
                self.stopped = self.stopped or str(left) or INTERRUPTED
            except ConfigError as error:
                self.refused = str(error)
                self.tell(self.refused)
            except (RecordingError, PortError) as error:
                failed = str(error)
                self.tell(failed)
            except Exception as error:
                failed = f"{type(error).__name__}: {error}"
                raise
            finally:
                try:
                    if not self.runner.session.why_not("finish"):
                        finish("finish")
                except KeyboardInterrupt:
                    self.stopped = self.stopped or INTERRUPTED
                except Exception as error:  # the session is closed in any case
                    failed = failed or f"finish: {error}"
                finally:
                    self.runner.session.close()
                    close()
                code = self.runner.conclude(self.refused, failed, self.stopped)
                self._printer.wait()
        return code

    def _walk_on(self) -> None:
        unloads = self.answers.moves("unload")
        while not self._over:
            self.heed_signals()  # signals that arrived during an act that does not poll for them
            if self.stopped:
                return
            seen = self.runner.session.seen  # answers are valid only until the next stop
            if not (act := next_act(self.runner, lambda: self.leads if unloads is None else unloads)):
                return
            if not self.leads or self._proposed(act, seen):
                self._do(act, "", seen)

    def _proposed(self, act: str, seen: Seen) -> bool:
        runner, session = self.runner, self.runner.session
        reason = f" ({session.reason})" if session.reason else ""
        prompt = f"\n{runner.record.rig_kind}, state: {runner.state.name.lower()}{reason}"
        lost = runner.state is State.TRIPPED
        self.say(Text(runner.record.named(prompt), style="bold red") if lost else prompt)
        if why_not := session.why_not(act):
            self.say(f"{act} is not possible now: {why_not}")
        rung = "" if act in ("unload", "finish") else runner.next_rung
        prompt = f"{act}, for rung {rung} ({RUNGS[rung].title})" if rung else act
        moves = bool(runner.motion(act))
        proposal = f"next: {prompt}; type {act} to move the rig" if moves else f"Enter: {prompt}"
        line = self.line(f"act ({proposal}; ?: list all acts): ")
        name, _, rest = line.partition(" ")
        if line == act or not (line or moves):
            return True
        if not line:
            self.say(f"nothing has moved, because Enter starts no motion. Type {act}")
        elif name in ("?", "help"):
            self.say(acts_table(session.possible(), act))
        elif name not in ACTS:
            self.say(f"unknown act {name!r}. The known acts are {', '.join(ACTS)}")
        else:
            self._do(name, rest, seen)
        return False

    def _do(self, act: str, rest: str, seen: Seen) -> None:
        """Ask an act's questions, then perform the act. Raise a refusal, or print it if the operator leads."""
        self._typed, session = False, self.runner.session
        try:
            with session.act(act, seen):  # one stop ends the act and its questions
                if act in QUESTIONS and not session.why_not(act, early=True):
                    QUESTIONS[act](self, rest)
                else:
                    self.plain(act, rest)
        except ConfigError as error:
            if not self.leads:
                raise
            self.say(f"refused: {error}")

    def plain(self, act: str, rest: str = "") -> None:
        arguments = {name: rest for name in ACTS[act].arguments[:1] if rest and name != "clear"}
        if result := self.perform(act, **arguments):
            self.say(result)

    def perform(self, act: str, shown: str = "", /, **arguments: Any) -> str:
        """Perform an act and return its result. The operator can intervene in a ``lasting`` act."""
        session = self.runner.session
        motion = self.runner.motion(act, arguments)
        if motion and not session.why_not(act):  # an impossible act is refused without a question
            arguments["clear"] = self.clear(act, motion)
        work = partial(session.do, act, way=TERMINAL if self.leads or self._typed else ANSWERS, **arguments)
        return self.meanwhile(shown or act, work) if ACTS[act].lasting else work()

    def _changed(self, state: State, reason: str) -> None:
        at_rest, self._last = self._last in AT_REST, state
        if state is State.STOPPING and reason:
            self.tell(f"{state.name.lower()}: {reason}")
        elif state is State.TRIPPED and at_rest:
            below = "\n" if self.asking else ""  # do not continue the line of an open question
            self.tell(Text(self.runner.record.named(f"{below}TRIPPED: {reason}"), style="bold red"))
        if state in NEXT:
            self.tell(self.runner.record.rest_of_last(NEXT[state]))

    def meanwhile(self, name: str, work: Callable[[], T]) -> T:
        del self._signals[: self._answered]
        self._answered, self._done = 0, (0, 0)
        with self._progress(name) as bar, self.runner.session.act():
            self.runner.starting = bar.starting
            self.heed_signals()  # a stop requested earlier ends the act before its motion
            result = begun(work, name)
            while wait([result], LOOK_S).not_done:
                self._attend()
                if self._done[1]:
                    bar(*self._done)
                warning = self.runner.session.warning.text
                if warning and warning != self._warned:  # the text changes once per second
                    self.tell(warning)
                self._warned = warning
        return result.result()

    def heed_signals(self) -> None:
        if len(self._signals) > self._answered:
            self._answered = len(self._signals)
            first = self._answered == 1 and self._signals[0] == signal.SIGINT
            if self._answered > 2:
                raise KeyboardInterrupt
            holds = first and self.attended and not self.runner.session.why_not("hold")
            self._interrupt("hold" if holds else "stop", REQUESTS.get(self._signals[-1], ""))

    def _attend(self) -> None:
        self.heed_signals()
        if self._listens and select.select([sys.stdin], [], [], 0.0)[0]:
            keys = os.read(sys.stdin.fileno(), 4096).decode(errors="replace")
            if not keys:
                self._listens = False
                self._interrupt("stop", "the terminal is closed")
            for entered in keys.splitlines():
                line = entered.strip()
                act = TYPED.get(line.lower(), "note" if line else "")
                if line in ("r", "resume"):
                    self._say_held()
                elif entered == CLEAR:  # stops must work while the act waits for the end of a warning
                    self._signals.clear()
                    self._answered = 0
                    resume = partial(copy_context().run, self._attempt, "resume", clear=CLEAR)
                    threading.Thread(target=resume, name="resume", daemon=True).start()
                elif act == "note":
                    self._attempt("note", text=line)
                elif act:
                    self._interrupt(act)

    def _say_held(self) -> None:
        self.tell(f"MOTION: resume: {self.runner.motion('resume')}")
        self.tell(f"held: type {CLEAR} to resume this motion, or s to stop")

    def _interrupt(self, act: str, reason: str = "") -> None:
        """Stop or hold the rig. A stop with a ``reason``, or with an answers file, also ends the test."""
        if act == "stop" and (reason or not self.leads):
            self.stopped = self.stopped or reason or INTERRUPTED
        self._attempt(act, reason=reason or f"the operator has asked to {act}")
        if act == "hold" and self.runner.can_resume:
            self._say_held()

    def _attempt(self, act: str, **arguments: Any) -> None:
        try:
            self.runner.session.do(act, way=TERMINAL, **arguments)
        except (ConfigError, RecordingError) as error:
            self.tell(str(error))

    def _signal(self, number: int) -> None:
        if self.asking:
            raise KeyboardInterrupt(REQUESTS.get(number, INTERRUPTED))
        if time.monotonic() - self._received_at > SAME_KEY_S or not self._signals:
            self._received_at = time.monotonic()
            self._signals.append(number)


def complete(
    ladder: Ladder, console: Console, rungs: Sequence[str], rehearse: Callable[[Work], Level] = lambda work: work()
) -> None:
    """Set level and time ratio if ``rungs`` need them. ``rehearse`` runs the rehearsal that proposes a level."""
    if ladder.level is None and set(rungs).intersection(REDUCED):
        ladder.level = float(console.value("level", rehearse(ladder.proposed_level)))
    if ladder.ratio is None and SLOW in rungs:
        ladder.ratio = int(console.value("time_ratio", 10))


def _climb(act: str, console: Console, rest: str) -> None:
    record = console.runner.record
    arguments = {"rung": rest} if rest and act == "rehearse" else {}
    message = console.perform(act, f"rung {console.runner.next_rung}", **arguments)
    console.say(rungs_table(record) if console.leads else message)
    last = record.rungs[-1]
    for remark in last.remarks:
        console.say(f"note: {remark}")
    if last.outcome != "finished":
        if console.leads:
            console.say(message)
        console.ends()
        return
    difference = largest(last.differences)
    bound = float(console.answers.largest_difference.get(last.name, math.inf))  # no bound: the operator decides
    if (not last.not_valid or counts(console, last)) and difference > bound:
        message = f"rung {last.name}: the relative rms difference {difference:.3g} must be <= {bound:g}"
        console.say(message)
        console.ends(message)


def counts(console: Console, rung: RungRecord) -> bool:
    """Return true if the operator accepts an invalid rung. If not, end a test that an answers file leads."""
    doubt = f"rung {rung.name}: {rung.ending}"
    accepted = console.attended and console.yes(f"{doubt}. Does this rung count nevertheless?")
    if accepted:
        console.runner.record.count(rung)
        console.runner.write()
    else:
        console.ends(doubt)
    return accepted


def _take_offsets(console: Console, rest: str) -> None:
    console.perform("take_offsets", seconds=console.value("offsets_seconds", 2.0))
    if (offsets := console.runner.session.taken) is not None:
        console.say(offsets_table(offsets.record(), console.runner.ladder.scenario))


def _confirm_offsets(console: Console, rest: str) -> None:
    session = console.runner.session
    offsets = session.taken
    assert offsets is not None  # the act requires unconfirmed offsets
    if not console.agreed("confirm_offsets", f"confirm these offsets ({offsets.hash})?"):
        session.taken = None
        console.ends()
        return
    for remark in console.runner.loads_at_rest:
        console.say(remark)
    unloaded = console.agreed("unloaded", "is the specimen unloaded now, so that its force can be tared?")
    console.perform("confirm_offsets", hash=offsets.hash, unloaded=unloaded)


def _checklist(console: Console, rest: str) -> None:
    runner = console.runner
    for item in runner.to_answer:
        answer = console.answers.checklist.get(item)
        yes = console.yes(f"{item}: do you confirm this item?") if answer is None else answer == YES
        console.perform("checklist", item=item, answer=YES if yes else NO)
    if left := "; ".join(runner.unconfirmed):
        console.ends(f"the checklist of the rig file has unconfirmed items: {left}")


def _check(console: Console, rest: str) -> None:
    console.perform("check")
    record, findings = console.runner.record, console.runner.findings
    console.say(checks_table(record))
    for remark in (*(remark for row in record.checks.values() for remark in row.remarks), *findings):
        console.say(remark)
    if findings and not console.leads:
        console.refused = "; ".join(findings)
        console.ends()


def _sign_for(console: Console, rest: str) -> None:
    items = [item for item in console.runner.session.clearance.wanting() if rest in ("", item.name, item.words)]
    if not items:
        console.perform("sign_for", what=rest)  # raises ConfigError, which lists the names
    for item in items:
        statement = f"{console.runner.record.named(item.words)}. Do you sign for this item?"
        signed = set(item.called).intersection(console.answers.sign_for)
        if not signed and not (console.attended and console.yes(statement)):
            if console.leads:
                return
            raise ConfigError(f"sign_for: the operator has not signed for {item.name} ({item.words})")
        console.perform("sign_for", what=item.name)


def _unload(console: Console, rest: str) -> None:
    statement = f"unload by displacement to {rest} m from the zero of the test, regardless of the force"
    if not rest:
        console.plain("unload")
    elif console.yes(f"{statement}. Do you sign for this motion?"):
        console.say(console.perform("unload", to=rest, signed=console.runner.record.operator or "the operator"))
    else:
        console.say("not unloaded")


def _arm(console: Console, rest: str) -> None:
    runner, ladder, rung = console.runner, console.runner.ladder, rest or console.runner.next_rung
    if rung not in ladder.planned:
        console.plain("arm", rung)  # raises ConfigError, which lists the rungs
    complete(ladder, console, rung, partial(console.meanwhile, "rehearsal of rung g"))
    step, offsets, moves = ladder.step(rung), runner.session.offsets, RUNGS[rung].moves
    offsets_hash = offsets.hash if offsets is not None else ""
    shown = moves and (console.leads or rung not in console.answers.arm)
    if shown or (moves and rung in REDUCED):
        console.meanwhile(f"rehearsal of rung {rung}", lambda: ladder.expected(rung))
    if shown:
        console.say(armed_table(step, ladder, offsets_hash))
    if moves and not arms(console, rung, step.hash, offsets_hash):
        console.say("not armed")
        console.ends()
        return
    arguments = {"rung": rung, "scenario_hash": step.hash, "offsets_hash": offsets_hash}
    if two_persons(rung, ladder.scenario):
        arguments["second"] = str(console.value("second"))
    console.say(console.perform("arm", **arguments))


def arms(console: Console, rung: str, scenario_hash: str, offsets_hash: str) -> bool:
    """Return true if the answers file or the operator arms the rung.

    The operator types the letter of the rung and the hash, because several rungs can have the same hash.
    """
    if rung in console.answers.arm or not console.attended:
        return rung in console.answers.arm
    question = f"to arm rung {rung}, type {rung} and the first {NAMED_BY} characters of the scenario's hash: "
    while True:
        line = console.line(question).lower().replace(" ", "")
        if line == rung + scenario_hash[:NAMED_BY]:
            return True
        if line == scenario_hash[:NAMED_BY]:
            console.say(f"type the letter of the rung before the hash: {rung} {line}")
        elif offsets_hash and line in (offsets_hash[:NAMED_BY], rung + offsets_hash[:NAMED_BY]):
            console.say("the entered text is the hash of the offsets. Enter the hash of the scenario")
        else:
            return False


QUESTIONS: dict[str, Callable[[Console, str], None]] = {
    "rehearse": partial(_climb, "rehearse"),
    "take_offsets": _take_offsets,
    "confirm_offsets": _confirm_offsets,
    "checklist": _checklist,
    "check": _check,
    "sign_for": _sign_for,
    "arm": _arm,
    "run": partial(_climb, "run"),
    "acknowledge": lambda console, rest: console.plain("acknowledge") if console.leads else console.ends(),
    "unload": _unload,
}
"""Functions that ask the questions of an act, by act. The second argument is the remainder of the typed line."""


def acts_table(possible: Mapping[str, str], proposed: str) -> Table:
    grid = Table("", "act", "effect, or reason why the act is not possible now", box=None, pad_edge=False)
    for name in sorted(ACTS, key=lambda name: bool(possible[name])):
        if reason := possible[name]:
            grid.add_row("", f"[dim]{name}[/]", f"[dim]{escape(reason)}[/]")
        else:
            grid.add_row("[bold]>[/]" if name == proposed else "", f"[bold]{name}[/]", escape(ACTS[name].words))
    return grid


def offsets_table(record: OffsetsRecord, scenario: Scenario) -> Table:
    title = f"{rig_kind(scenario)}: offsets, measured for {record.seconds:g} s"
    grid = Table("axis", "channel", "value", "scatter (rms)", "of the range", title=title)
    names = axis_names(scenario)
    for name, row in record.axes.items():
        axis, called = scenario.axes[name].rig_axis, names[name]
        for noun in UNITS:
            value, end = getattr(row, noun), getattr(axis, noun).range_si if axis is not None else math.nan
            share = f"{plain(value / end, PERCENT)} %" if math.isfinite(end) else "-"
            grid.add_row(called, noun, _with(value, noun), _with(getattr(row, f"{noun}_scatter"), noun), share)
        active = _with(row.command, "displacement") if math.isfinite(row.command) else "cannot be read"
        grid.add_row(called, "active command", active, "", "")
    return grid


def checks_table(record: ProcedureRecord) -> Table:
    heads = ["axis", "displ. sign", "force sign", "displ. scale", "force scale", "stiffness", "expected"]
    labels = {WRONG: "WRONG", "": "-"}
    loops = any(row.force_loop for row in record.checks.values())
    title = f"{label(record.simulation)}: signs and scales, checked by the small move"
    grid = _narrow(*heads, *["force loop"] * loops, title=title)
    for name, row in record.checks.items():
        results = [row.displacement_sign, row.force_sign, row.displacement_scale, row.force_scale]
        stiffness = "-" if row.stiffness is None else f"{plain(row.stiffness, KN / MM)} kN/mm"
        band = [plain(bound, KN / MM) for bound in (row.low, row.high) if bound is not None]
        cells = [labels.get(result, result) for result in (*results, *[row.force_loop] * loops)]
        cells[4:4] = stiffness, " to ".join(band) or "-"
        grid.add_row(record.called(name), *cells)
    return grid


def armed_table(step: Step, ladder: Ladder, offsets_hash: str) -> Table:
    title = f"{rig_kind(ladder.scenario)}: rung {step.rung.name} ({step.rung.words})"
    grid = Table("", "", title=title, show_header=False)
    rows = [
        ("scenario", f"[bold]{step.hash}[/]  level {PERCENT * step.level:g} %, time ratio {step.ratio}"),
        ("offsets", offsets_hash),
        *(("file", escape(f"{path}: {digest[:NAMED_BY]}")) for path, digest in step.files.items()),
        *(("code", escape(f"{name}: {version}")) for name, version in ladder.code.names.items()),
        ("host, pace", f"{step.host}, {step.pace}"),
        ("engine", step.engine),
    ]
    names, stops, elastic = axis_names(step.scenario), ladder.stops(step), rehearsal.elastic_limits(step.scenario)
    for name, peak in ladder.expected(step.rung.name).items():
        expected = [f"{_with(peak[noun], noun)}, stops at {_with(stops[name][noun], noun)}" for noun in UNITS]
        text = "expected " + "\n         ".join(expected)
        if name in elastic:
            text += f"\nelastic up to {_with(elastic[name], 'displacement')}"
        rows.append((names[name], text))
    for row in rows + [("note", escape(remark)) for remark in (*step.remarks(), *ladder.unknown(step.rung.name))]:
        grid.add_row(*row)
    return grid


def rungs_table(record: ProcedureRecord) -> Table:
    heads = ("rung", "level", "axis", "mm (stop)", "kN (stop)", "before", "rehearsal", "verdict")
    title = f"{label(record.simulation)}: peaks, and differences from the previous rung and the rehearsal"
    grid = _narrow(*heads, title=title)
    for column in grid.columns[1:-1]:
        column.no_wrap = True
    for row in record.rungs:
        differs = [_worst(row.differences, rehearsal) for rehearsal in (False, True)]
        slower = f", ratio {row.time_ratio:g}" if row.time_ratio > 1 else ""
        first = (f"{row.name} {RUNGS[row.name].title}{slower}", f"{PERCENT * row.level:g} %")
        for axis, peak in (row.peaks or {"": {}}).items():
            stop = row.limits.get(axis, {})
            far = [
                f"{plain(peak.get(noun), factor)} ({plain(stop.get(noun), factor)})"
                for noun, (factor, _) in UNITS.items()
            ]
            grid.add_row(*first, record.called(axis), *far, *differs, verdict(row))
            first, differs = ("", ""), ["", ""]
    return grid


def _narrow(*heads: str, title: str) -> Table:
    return Table(*heads, title=title, box=None, padding=(0, 2, 0, 0), pad_edge=False)


def _worst(peaks: Mapping[str, float], rehearsal: bool) -> str:
    values = [value for name, value in peaks.items() if name.endswith(REHEARSAL) == rehearsal]
    return f"{max(values):.3g}" if values else "-"


def _with(value: float, noun: str) -> str:
    factor, unit = UNITS[noun]
    return f"{plain(value, factor)} {unit}"
