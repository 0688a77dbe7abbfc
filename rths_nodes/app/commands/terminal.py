"""What the sub-commands share: progress, tables, places to write to."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rths_nodes.core.errors import ConfigError


def check_writable(path: Path) -> None:
    """Refuses a file that cannot be written, before anything is computed for it. Raises ConfigError."""
    try:
        parent = path.absolute().parent
        while not parent.exists():
            parent = parent.parent
        cannot = path.is_dir() or not parent.is_dir() or not os.access(parent, os.W_OK)
    except OSError as error:  # e.g. a name that is too long
        raise ConfigError(f"{path}: cannot be written there ({error.strerror})") from error
    if cannot:
        raise ConfigError(f"{path}: cannot be written there")


def figure_path(given: str | None) -> Path | None:
    """Where a figure is to be drawn, if one is wanted. Raises ConfigError where that cannot be done."""
    if not given:
        return None
    from rths_nodes.app.studies.comparison import check_figure

    path = Path(given)
    check_figure(path)
    check_writable(path)
    return path


def tell(notes: Iterable[str]) -> None:
    """Say what a user should know beside what was asked for; on stderr, where it is in the way of no program."""
    for words in notes:
        print(f"note: {words}", file=sys.stderr)


@contextmanager
def writing(path: Path, word: str = "") -> Iterator[None]:
    """``path`` is written meanwhile, and then told as ``word``, if given. Raises OSError with the path."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    if word:
        print(f"{word}: {path}")


@contextmanager
def progress(name: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda sample, samples: bar.update(task, completed=sample, total=samples)


def finite(entry: Any) -> Any:
    """JSON has no nan and no infinity: null."""
    if isinstance(entry, dict):
        return {key: finite(value) for key, value in entry.items()}
    if isinstance(entry, list):
        return [finite(value) for value in entry]
    return None if isinstance(entry, float) and not math.isfinite(entry) else entry


def console() -> Any:
    """Where tables go: as wide as the terminal, wide in a pipe."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)
