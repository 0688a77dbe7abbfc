# SPDX-License-Identifier: Apache-2.0
"""Errors for refused input and failed components, and the display of values in messages."""

from __future__ import annotations

import difflib
import inspect
import shlex
import traceback
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class ConfigError(ValueError):
    """Raised for invalid input, before anything moves (exit code 2). ``problems`` are reported one per line."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems

    def within(self, prefix: str) -> ConfigError:
        return ConfigError(*(f"{prefix}: {problem}" for problem in self.problems))


@contextmanager
def within(prefix: str) -> Iterator[None]:
    """Prepend ``prefix`` to each problem of a ConfigError raised in the ``with`` block."""
    try:
        yield
    except ConfigError as error:
        raise error.within(prefix) from None


class PortError(RuntimeError):
    """Raised if the connection to a rig fails during a test. The message names port, address and operation."""


class IntegratorError(RuntimeError):
    """Raised if an external integrator fails during a test."""


class ComponentError(RuntimeError):
    """Raised if a component of another package fails during a test."""


class Stopped(Exception):
    """Raised if a test whose result is required has not finished. ``exit_code`` is the exit code of the test."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ClientLeft(IntegratorError):
    """Raised if the client of an external integrator ends normally before the end of the test."""


class Problems(list[str]):
    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Collect a ConfigError raised in the ``with`` block, so that later checks also run."""
        try:
            yield
        except ConfigError as error:
            self.extend(error.problems)

    def refuse(self) -> None:
        if self:
            raise ConfigError(*self)


SHOWN = 100


def join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def show(value: object, unit: str = "") -> str:
    """Return ``value`` as text for messages, shortened to 60 characters if longer, and its ``unit``."""
    unit = "" if unit == "1" else unit  # dimensionless
    try:
        shown = repr(value) if not isinstance(value, float) else f"{value:g}"
    except ValueError:  # Python refuses to convert integers with thousands of digits
        shown = "a number with thousands of digits"
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return f"{shown} {unit}".rstrip()


def counted(count: float, noun: str) -> str:
    """Return ``count`` and ``noun``, in the plural unless ``count`` is 1: ``1 sample``, ``2 samples``."""
    return f"{count:.0f} {noun}{'s' * (count != 1)}"


def printable(text: str, kept: str = "") -> str:
    r"""Return ``text`` with escapes for all characters that are neither printable nor in ``kept``.

    Terminal codes, line breaks and bidirectional controls from other programs could otherwise change the displayed
    or recorded text.

    >>> printable("Ada\x1b[2J")
    'Ada\\x1b[2J'
    """

    def shown(character: str) -> str:
        as_it_is = character.isprintable() or character in kept or unicodedata.category(character) == "Zs"
        return character if as_it_is else character.encode("unicode_escape").decode()

    return "".join(map(shown, text))


def quoted(path: object) -> str:
    """Return ``path`` as one word of a shell command."""
    return shlex.quote(str(path))


# another package may call sys.exit, but must not set the exit code of a test
FOREIGN = Exception, SystemExit


def package_of(module: object) -> str:
    return str(module).partition(".")[0]


def raised_at(error: BaseException, module: str) -> str:
    """Return the innermost file, line and function of ``error`` in the package of ``module``; empty if none."""
    location = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if package_of(frame.f_globals.get("__name__")) == package_of(module):
            location = f"{frame.f_code.co_filename}:{line}: in {frame.f_code.co_name}: "
    return location


def located(source: Any, name: str = "") -> str:
    """Return ``name`` (default: name of ``source``). Append file and line if ``source`` is in another package."""
    source = inspect.unwrap(source)
    name = name or source.__qualname__
    if package_of(source.__module__) == package_of(__name__):
        return name
    if inspect.isfunction(source):
        code = source.__code__
        return f"{name} ({code.co_filename}:{code.co_firstlineno})"
    try:
        file, (_, line) = inspect.getsourcefile(source), inspect.getsourcelines(source)
    except (OSError, TypeError):  # the source has no file, e.g. in an interactive session
        return f"{name} ({source.__module__})"
    return f"{name} ({file}:{line})"


def unknown(path: str, kind: str, name: object, choices: Iterable[str]) -> ConfigError:
    """Return the error for an unknown name. Its message lists the known names and the closest match."""
    names = sorted(choices)
    beyond = [f"and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    guess = difflib.get_close_matches(str(name), names, 1)
    hint = f" (did you mean {guess[0]!r}?)" if guess else ""
    shown = ", ".join(names[:SHOWN] + beyond) or "none"
    where = f"{path}: " if path else ""
    return ConfigError(f"{where}unknown {kind} {name!r}{hint}; known: {shown}")
