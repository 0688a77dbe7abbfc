# SPDX-License-Identifier: Apache-2.0
"""Questions to an operator: answered from a file where the answers stand there, else on the terminal."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rths_nodes.app.procedure.answers import Answers, difference_bound
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import declared
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import number_in

NAMED_BY = 6
"""Characters of a hash that an operator types to arm."""
YES, NO = ("y", "yes"), ("n", "no", "")


class Interrupted(Exception):
    """The operator has interrupted a question, or the terminal is closed: in words."""


def typed(question: str) -> str:
    """A line that is typed at the terminal behind ``question``, which goes to stderr."""
    print(question, end="", file=sys.stderr, flush=True)
    if sys.stdin.isatty() and threading.current_thread() is threading.main_thread():
        _wait_for_a_line()
    return input()


def typed_unseen(question: str) -> str:
    """A line that is typed at the terminal behind ``question``, and not shown there."""
    with _without_echo():
        print(question, end="", file=sys.stderr, flush=True)
        if sys.stdin.isatty() and threading.current_thread() is threading.main_thread():
            _wait_for_a_line()
        line = sys.stdin.readline()  # input() would show it where readline is loaded
    print(file=sys.stderr)
    if not line:
        raise EOFError
    return line.rstrip("\n")


@contextmanager
def _without_echo() -> Iterator[None]:
    """The terminal shows nothing of what is typed, and forgets what was typed before."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    silent = before[:]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, before)


def _wait_for_a_line() -> None:
    """Until the terminal has a line. Ctrl-C is heard whenever it comes.

    A read that begins just after a signal, before its handler has run, would wait for the next key.
    """
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        while sys.stdin not in select.select([sys.stdin, reader], [], [])[0]:
            os.read(reader, 4096)  # of a signal whose handler has raised nothing
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


class Dialogue:
    """Answers out of ``answers``; what is not there is asked by ``ask``, which gets the question.

    Without ``ask`` there is no terminal, and every answer stands in the file. ``ask_unseen`` is for keys.
    """

    def __init__(
        self,
        answers: Answers,
        ask: Callable[[str], str] | None,
        say: Callable[[object], None],
        ask_unseen: Callable[[str], str] = typed_unseen,
    ) -> None:
        self.answers, self._ask, self.say, self._ask_unseen = answers, ask, say, ask_unseen
        self.asking = False
        """True while the operator thinks about an answer."""
        self.typed = False
        """True once something was typed for the act that comes next."""

    @property
    def attended(self) -> bool:
        """There is somebody to be asked."""
        return self._ask is not None

    def line(self, question: str) -> str:
        """A line of the operator. Raises Interrupted where nobody can be asked."""
        return self._asked(self._ask, question).strip()

    def unseen(self, question: str) -> str:
        """A key, which is typed and not shown, and stands in no file. Raises Interrupted as :meth:`line`."""
        return self._asked(self._ask and self._ask_unseen, question)

    def _asked(self, ask: Callable[[str], str] | None, question: str) -> str:
        if ask is None:
            raise Interrupted(f"nobody can be asked: {question}")
        self.asking = self.typed = True
        try:
            return ask(question)
        except (EOFError, OSError):
            raise Interrupted("the terminal is closed") from None
        finally:
            self.asking = False

    def value(self, key: str, proposed: object = None) -> Any:
        """The answer ``key``, checked as in a file; an empty line takes what is ``proposed``."""
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
        """A question to which the answer is yes or no; from the file where ``key`` stands there."""
        given = getattr(self.answers, key)
        return bool(given) if given is not None else self.yes(question)

    def yes(self, question: str) -> bool:
        """Yes or no, asked until it is one of both; an empty line is no."""
        while True:
            typed = self.line(f"{question} [y/N]: ").lower()
            if typed in YES:
                return True
            if typed in NO:
                return False
            self.say("y or n")

    def arms(self, rung: str, scenario_hash: str, offsets_hash: str) -> bool:
        """Return whether the rung is to be armed: it is in the file, or the operator types the head of the hash.

        Who types that of the offsets is told so, and asked again.
        """
        return rung in self.answers.arm or self._typed(
            f"rung {rung}", "the scenario's", scenario_hash, offsets_hash
        )

    def arms_mandate(self, mandate_hash: str, offsets_hash: str) -> bool:
        """Return whether a mandate is to be armed: as :meth:`arms`, but never by a file."""
        return self._typed("the mandate", "its", mandate_hash, offsets_hash)

    def _typed(self, what: str, whose: str, armed_hash: str, offsets_hash: str) -> bool:
        if self._ask is None:
            return False
        question = f"to arm {what}, type the first {NAMED_BY} characters of {whose} hash: "
        while True:
            typed = self.line(question).lower()
            if typed == armed_hash[:NAMED_BY]:
                return True
            if typed != offsets_hash[:NAMED_BY] or not typed:
                return False
            self.say("that is the hash of the offsets")

    def signs(self, words: str, called: Iterable[str]) -> bool:
        """Return whether the operator answers for ``words``, which are ``called`` so in a file of answers."""
        if set(called) & set(self.answers.sign_for):
            return True
        return self._ask is not None and self.yes(f"{words}; do you sign for it?")

    def counts(self, rung: str, ending: str) -> bool:
        """Ask the operator whether a rung counts that is not valid; no where nobody can be asked."""
        return self._ask is not None and self.yes(f"rung {rung}: {ending}; does it count all the same?")

    def goes_on(self, rung: str, difference: float) -> bool:
        """Return whether the ladder goes on after such a ``difference``; on a terminal the operator decides."""
        bound = difference_bound(self.answers, rung)
        if math.isnan(bound):
            return True
        return difference <= bound
