# SPDX-License-Identifier: Apache-2.0
"""Input of the operator during a lasting act, whose work runs in a thread."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from signal import SIGINT
from typing import Any, TypeVar

from rths_nodes.app.procedure.dialogue import Dialogue, Interrupted
from rths_nodes.app.procedure.procedure_runner import HEARD, ProcedureRunner
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError
from rths_nodes.procedure.acts import ACTS, CLEAR
from rths_nodes.procedure.records import TERMINAL
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
