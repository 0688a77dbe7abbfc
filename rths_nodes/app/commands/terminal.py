# SPDX-License-Identifier: Apache-2.0
"""Terminal output of the sub-commands: progress, tables, checks of output paths."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rths_nodes.analysis.units import span
from rths_nodes.core.errors import ConfigError, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.measure import Measurement
    from rich.progress import Progress as Bars
    from rich.table import Column, Table

LINES = "\n\t"
RUNS = "runs"
TOLD_S = 30.0
"""Interval between progress lines if standard error is not a terminal, s."""
LEAST_WIDTH = 20
SENTENCE = 24
"""Largest number of characters in a cell of an unwrapped column."""
WIDE = 10_000
TOGETHER = "\N{NO-BREAK SPACE}"


def check_writable(path: Path) -> None:
    """Raise ConfigError if the file cannot be written.

    A missing folder other than ``runs`` is refused, because its name is probably misspelled.
    """
    folder = path.absolute().parent
    check_makable(path)
    if not folder.is_dir() and folder != Path(RUNS).absolute():
        raise ConfigError(f"{path}: the folder {path.parent} does not exist. Create it, or correct the path")


def check_makable(path: Path) -> None:
    """Raise ConfigError if the file cannot be written. A missing folder is not an error."""
    if path.suffix == ".mcap" or path.name == "metadata.yaml":
        raise ConfigError(f"{path}: this name is reserved for recordings; choose another name")
    try:
        parent = path.absolute().parent
        while not parent.exists():
            parent = parent.parent
        cannot = path.is_dir() or not parent.is_dir() or not os.access(parent, os.W_OK)
    except OSError as error:  # e.g. the name is too long
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from error
    if cannot:
        raise ConfigError(f"{path}: cannot be written")


def tell(notes: Iterable[str]) -> None:
    for note in notes:
        print(f"note: {printable(note, kept=LINES)}", file=sys.stderr)


@contextmanager
def writing(path: Path, word: str = "") -> Iterator[None]:
    """Print ``word`` and ``path`` after the ``with`` block, unless ``word`` is empty.

    An OSError without a file name is raised again with the name ``path``.
    """
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(error.filename or path)) from error
    if word:
        print(f"{word}: {path}")


@contextmanager
def page_of_test(path: Path, word: str = "") -> Iterator[None]:
    """Do the same as :func:`writing`, but print errors, because the test has already ended."""
    try:
        with writing(path, word):
            yield
    except Exception as error:  # a figure may raise any error
        reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        remedy = "if the test was recorded, use rths report"
        print(f"rths: {path}: could not be written ({reason}); {remedy}", file=sys.stderr)


@contextmanager
def progress(name: str) -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield Progress(name)
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (rich.TextColumn("{task.description}", markup=False), rich.BarColumn())
    clocks = (rich.TextColumn("{task.fields[share]}"), rich.TimeElapsedColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, *clocks, console=Console(stderr=True), transient=True) as bars:
        yield Progress(name, bars)


class Progress:
    """Shows the progress of ``name`` on standard error: a bar, or lines of text if ``bars`` is None."""

    def __init__(self, name: str, bars: Bars | None = None) -> None:
        self._name, self._bars, self._waits = name, bars, ""
        self._task = None if bars is None else bars.add_task(name, total=None, share="")
        self._begun, self._first = 0.0, 0.0
        self._next = time.monotonic() + TOLD_S

    def __call__(self, done: float, total: float) -> None:
        now = time.monotonic()
        begins = done > 0 and not self._begun
        if begins:
            self._begun, self._first = now, done
        if self._bars is not None and self._task is not None:
            if begins:  # the measured speed must not include the start-up
                self._bars.reset(self._task, description=self._name, total=total)
            if self._begun:
                self._bars.update(self._task, completed=done, total=total, share=f"{100.0 * done / total:3.0f} %")
        elif now >= self._next and done > self._first > 0.0:
            left = (now - self._begun) * (total - done) / (done - self._first)
            self._say(now, f"{done / total:.0%} done, about {span(left)} left")

    def starting(self, text: str) -> None:
        now = time.monotonic()
        if self._bars is None or self._task is None:
            if now >= self._next:
                self._say(now, text)
        elif not self._begun and text != self._waits:
            self._waits = text
            self._bars.update(self._task, description=f"{self._name}: {text}", refresh=True)

    def _say(self, now: float, text: str) -> None:
        self._next = now + TOLD_S
        print(f"{self._name}: {text}", file=sys.stderr, flush=True)


def print_now(text: str) -> None:
    print(printable(text, kept=LINES), file=sys.stderr, flush=True)


def finite(entry: object) -> object:
    """Return ``entry`` with None in place of NaN and infinity, because JSON has no such numbers."""
    if isinstance(entry, dict):
        return {key: finite(value) for key, value in entry.items()}
    if isinstance(entry, list):
        return [finite(value) for value in entry]
    return None if isinstance(entry, float) and not math.isfinite(entry) else entry


def print_json(data: object) -> None:
    print(json.dumps(finite(data), indent=2))


def output(as_json: bool, data: object, show: Callable[..., object], *values: object) -> None:
    if as_json:
        print_json(data)
    else:
        show(*values)


def console(stream: TextIO | None = None) -> Console:
    from rich.console import Console

    stream = sys.stdout if stream is None else stream
    return Console(file=stream, highlight=False, width=None if stream.isatty() else 160)


def folded(text: str, head: str = "", hang: int = 0) -> str:
    """Return ``head`` followed by ``text``.

    On a terminal, lines are wrapped, but not between a number and its unit. Continuation lines are indented by
    ``hang`` columns more than the length of ``head``.
    """
    if not sys.stdout.isatty():
        return f"{head}{text}".rstrip()
    indent = " " * (len(head) + hang)
    width = max(len(indent) + LEAST_WIDTH, shutil.get_terminal_size().columns)
    text = re.sub(r"(?<=\d) (?=\S)", TOGETHER, text)
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(TOGETHER, " ") or head.rstrip()


def say(line: str) -> None:
    text = line.lstrip()
    print(folded(printable(text), " " * (len(line) - len(text)), hang=2))


def table(
    rows: Iterable[Iterable[RenderableType]],
    *heads: str,
    numbers: Iterable[str] = (),
    last: Iterable[str] = (),
) -> None:
    """Print a table with text columns ``heads``, then numeric columns ``numbers``, then text columns ``last``.

    Markup in strings is not interpreted.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE)
    for head in heads:
        grid.add_column(Text(head))
    for head in numbers:
        grid.add_column(Text(head), justify="right", style="dim" if head == "published" else None)
    for head in last:
        grid.add_column(Text(head))
    for row in rows:
        grid.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    show(console(), grid)


def show(out: Console, grid: Table) -> None:
    """Print a rich table, or its rows as sentences if the table is too wide."""
    from rich.measure import Measurement

    wide = out.options.update(width=WIDE)
    if Measurement.get(out, wide, grid).maximum > out.width:
        for column in grid.columns:
            _narrow(column, lambda cell: out.measure(cell, options=wide))
    if Measurement.get(out, wide, grid).minimum <= out.width:
        out.print(grid)
        return
    cells = (
        [str(out.render_str(cell) if isinstance(cell, str) else cell) for cell in (column.header, *column.cells)]
        for column in grid.columns
    )
    heads, *rows = zip(*cells, strict=True)
    name = ""
    for first, *further in rows:
        name = first or name  # tables show the name of a group once
        parts = (f"{head} {cell}".strip() for head, cell in zip(heads[1:], further, strict=True) if cell)
        line_text = ", ".join(grid_column.replace(" ", TOGETHER) for grid_column in parts)
        print(folded(f"{heads[0]} {name}: {line_text}".lstrip(), hang=2))


def _narrow(column: Column, measured: Callable[[RenderableType], Measurement]) -> None:
    cells = [measured(cell) for cell in column.cells]
    widest = max((cell.maximum for cell in cells), default=0)
    if widest <= SENTENCE:
        column.width = max(widest, measured(column.header).minimum)
