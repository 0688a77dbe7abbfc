# SPDX-License-Identifier: Apache-2.0
"""Questions to an operator, answered by a file or at the terminal."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterable
from typing import Any

from rths_nodes.app.procedure.answers import Answers, difference_bound
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import declared
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import number_in
from rths_nodes.procedure.acts import CLEAR, ActRefused

LOOK_S = 0.1
"""Polling interval of the reason why an act has ended, s."""
NAMED_BY = 6
"""Characters of a hash that an operator types to arm."""
YES, NO = ("y", "yes"), ("n", "no", "")
TYPE_CLEAR = f"type {CLEAR} to start this motion; anything else moves nothing: "


class Interrupted(Exception):
    """The operator has interrupted a question, or the terminal is closed."""


def typed(question: str) -> str:
    """Return a line typed at the terminal after ``question``, which goes to stderr."""
    print(question, end="", file=sys.stderr, flush=True)
    if sys.stdin.isatty() and threading.current_thread() is threading.main_thread():
        _wait_for_a_line()
    return input()


def _wait_for_a_line(ended: Callable[[], str] = str) -> str:
    """Wait for a line of the terminal, or until ``ended`` returns a reason; return that, or empty.

    Signals interrupt it at any time: a read that begins just after a signal, before its handler has run, would
    wait for the next key.
    """
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        while sys.stdin not in (ready := select.select([sys.stdin, reader], [], [], LOOK_S)[0]):
            if ready:
                os.read(reader, 4096)  # of a signal whose handler has raised nothing
            if reason := ended():
                return reason
        return ""
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


class Dialogue:
    """Answers from ``answers``, then from ``ask(question)``; without that the file has to be complete."""

    def __init__(
        self,
        answers: Answers,
        ask: Callable[[str], str] | None,
        say: Callable[[object], None],
    ) -> None:
        self.answers, self._ask, self.say = answers, ask, say
        self.asking = False
        self.typed = False
        """True once something was typed for the next act."""

    @property
    def attended(self) -> bool:
        return self._ask is not None

    def line(self, question: str) -> str:
        """Return a stripped line of the operator. Raises Interrupted without a terminal."""
        return self.exact_line(question).strip()

    def exact_line(self, question: str) -> str:
        """Return a line of the operator as typed. Raises Interrupted without a terminal."""
        if self._ask is None:
            raise Interrupted(f"nobody can be asked: {question}")
        self.asking = self.typed = True
        try:
            return self._ask(question)
        except (EOFError, OSError):
            raise Interrupted("the terminal is closed") from None
        finally:
            self.asking = False

    def value(self, key: str, proposed: object = None) -> Any:
        """Return the answer ``key``, checked as in a file; an empty line takes the ``proposed`` one."""
        given = getattr(self.answers, key)
        if given is not None and given != ():
            return given
        spec = declared(Answers)[key]
        unit = f" [{spec.unit}]" if spec.unit else ""
        standing = f" ({proposed})" if proposed is not None else ""
        while True:
            typed = self.line(f"{key}: {spec.doc}{unit}{standing}: ")
            try:
                return self._checked(key, typed) if typed or proposed is None else proposed
            except ConfigError as error:
                self.say(str(error))

    @staticmethod
    def _checked(key: str, typed: str) -> object:
        return getattr(from_data(Answers, {key: number_in(typed)}), key)

    def agreed(self, key: str, question: str) -> bool:
        given = getattr(self.answers, key)
        return bool(given) if given is not None else self.yes(question)

    def yes(self, question: str) -> bool:
        """Ask for yes or no until answered; an empty line is no."""
        while True:
            typed = self.line(f"{question} [y/N]: ").lower()
            if typed in YES:
                return True
            if typed in NO:
                return False
            self.say("y or n")

    def clear(self, act: str, motion: str, ended: Callable[[], str]) -> str:
        """Return CLEAR if the file names the ``motion`` of ``act``, else the line that the operator types.

        A line that was typed before the motion was stated does not count. Raises ActRefused without a line
        once ``ended`` returns why the act has ended.
        """
        answer = self.answers.moves(act)
        if answer is not None or self._ask is None:
            return CLEAR if answer else ""
        self.say(f"MOTION: {act}: {motion}")
        if not sys.stdin.isatty():
            return self.exact_line(TYPE_CLEAR)
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        if self._ask is not typed:
            return self.exact_line(TYPE_CLEAR)
        print(TYPE_CLEAR, end="", file=sys.stderr, flush=True)
        self.asking = True
        try:
            reason = _wait_for_a_line(ended)
        finally:
            self.asking = False
        if reason:
            raise ActRefused(f"\n{act}: {reason}")
        return self.exact_line("")

    def confirms(self, item: str) -> bool:
        """Return whether an item of the checklist is confirmed, by the file or by the operator."""
        answer = self.answers.checklist.get(item)
        return self.yes(f"{item}: do you confirm it?") if answer is None else answer == "y"

    def arms(self, rung: str, scenario_hash: str, offsets_hash: str) -> bool:
        """Return whether to arm the rung: by the file, or by its letter and the typed beginning of the hash.

        Rungs of one level have the same scenario, hence the letter. The hash alone, or the hash of the offsets,
        typed by mistake, is explained and asked for again.
        """
        if rung in self.answers.arm:
            return True
        if self._ask is None:
            return False
        question = f"to arm rung {rung}, type {rung} and the first {NAMED_BY} characters of the scenario's hash: "
        while True:
            typed = self.line(question).lower().replace(" ", "")
            if typed == rung + scenario_hash[:NAMED_BY]:
                return True
            if typed == scenario_hash[:NAMED_BY]:
                self.say(f"begin with the letter of the rung: {rung} {typed}")
            elif offsets_hash and typed in (offsets_hash[:NAMED_BY], rung + offsets_hash[:NAMED_BY]):
                self.say("that is the hash of the offsets")
            else:
                return False

    def signs(self, words: str, called: Iterable[str]) -> bool:
        """Return whether the operator signs for ``words``, which an answers file may name as ``called``."""
        if set(called) & set(self.answers.sign_for):
            return True
        return self._ask is not None and self.yes(f"{words}; do you sign for it?")

    def counts(self, rung: str, ending: str) -> bool:
        """Ask the operator whether a rung that is not valid counts; no without a terminal."""
        return self._ask is not None and self.yes(f"rung {rung}: {ending}; does it count all the same?")

    def goes_on(self, rung: str, difference: float) -> bool:
        """Return whether the ladder continues after such a ``difference``; at a terminal the operator decides."""
        bound = difference_bound(self.answers, rung)
        if math.isnan(bound):
            return True
        return difference <= bound
