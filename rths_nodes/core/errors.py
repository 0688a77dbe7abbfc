# SPDX-License-Identifier: Apache-2.0
"""The one error for input that is refused, and how values are shown in its message."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class ConfigError(ValueError):
    """Input that is refused before anything moves (exit code 2). ``problems`` are told one a line."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems

    def within(self, place: str) -> ConfigError:
        """The same problems, each after the ``place`` in which it was found."""
        return ConfigError(*(f"{place}: {problem}" for problem in self.problems))


class PortError(RuntimeError):
    """The way to a rig has failed while a test was under way: says which port, where, and what was tried."""


class IntegratorError(RuntimeError):
    """An integrator outside of this process has failed while a test was under way: says what it did."""


class ComponentError(RuntimeError):
    """A component of another package has failed while a test was under way: says which one, and what it did."""


class ClientLeft(IntegratorError):
    """An integrator outside of this process has ended in order, before the test has."""


class Problems(list[str]):
    """Problems that are gathered, so that the user learns of all of them at once."""

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """A ConfigError inside is kept, and what follows is checked, too."""
        try:
            yield
        except ConfigError as error:
            self.extend(error.problems)

    def refuse(self) -> None:
        """Raises one ConfigError with all that was gathered; nothing where there is nothing."""
        if self:
            raise ConfigError(*self)


SHOWN = 100
"""Known names that a message lists: a large model has thousands."""


def join(path: str, key: object) -> str:
    """``axes`` and ``story_1`` -> ``axes.story_1``."""
    return f"{path}.{key}" if path else str(key)


def show(value: object, unit: str = "") -> str:
    """A value as it is shown in a message: short, with its unit."""
    unit = "" if unit == "1" else unit  # a number without a dimension
    try:
        shown = repr(value) if not isinstance(value, float) else f"{value:g}"
    except ValueError:  # Python writes no whole numbers of thousands of digits
        shown = "a number of thousands of digits"
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return f"{shown} {unit}".rstrip()


def printable(text: str, kept: str = "") -> str:
    r"""Return ``text`` with an escape for every character that is not printable and not ``kept``.

    Names, reasons and notes of other programs go through here before a terminal or a record gets them: terminal
    codes, line ends and marks of writing direction would show something else than was written.

    >>> printable("Ada\x1b[2J")
    'Ada\\x1b[2J'
    """

    def shown(character: str) -> str:
        as_it_is = character.isprintable() or character in kept or unicodedata.category(character) == "Zs"
        return character if as_it_is else character.encode("unicode_escape").decode()

    return "".join(map(shown, text))


def unknown(path: str, kind: str, name: object, known: Iterable[str]) -> ConfigError:
    """The error for an unknown name: says what is known and what was probably meant."""
    names = sorted(known)
    beyond = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    guess = difflib.get_close_matches(str(name), names, 1)
    hint = f" (did you mean {guess[0]!r}?)" if guess else ""
    shown = ", ".join(names[:SHOWN] + beyond) or "none"
    where = f"{path}: " if path else ""
    return ConfigError(f"{where}unknown {kind} {name!r}{hint}; known: {shown}")
