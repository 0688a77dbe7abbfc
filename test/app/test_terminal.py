# SPDX-License-Identifier: Apache-2.0
"""Tables and lines on narrow terminals: nothing is cut."""

from __future__ import annotations

import io
import random
import re
import sys
from pathlib import Path

import pytest
from rich import box
from rich.console import Console
from rich.table import Table
from terminal import Terminal

from rths_nodes.app.commands.terminal import folded, show

RTHS = [sys.executable, "-m", "rths_nodes.app.cli"]


def table(draw: random.Random) -> tuple[Table, list[str]]:
    """Any table, and every word of its cells."""
    grid = Table(box=draw.choice([box.SIMPLE, box.HEAVY_HEAD]))
    count, words = draw.randint(1, 9), []
    for column in range(count):
        names = [f"h{column}{'x' * draw.randint(0, 8)}" for _ in range(draw.randint(1, 3))]
        grid.add_column(" ".join(names), justify=draw.choice(["left", "right"]))
    for row in range(3):
        cells = [
            [f"c{row}{column}{'y' * draw.randint(0, 6)}" for _ in range(draw.choice([1, 1, 2, 2, 12]))]
            for column in range(count)
        ]
        grid.add_row(*map(" ".join, cells))
        words += [word for cell in cells for word in cell]
    return grid, words


def test_no_table_on_any_terminal_loses_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    for _ in range(200):
        grid, words = table(draw)
        out = io.StringIO()
        monkeypatch.setattr(sys, "stdout", out)
        show(Console(file=out, width=draw.randint(30, 120)), grid)
        assert set(words) <= set(re.findall(r"c\d+y*", out.getvalue()))


class Narrow(io.StringIO):
    """A terminal in memory."""

    def isatty(self) -> bool:
        return True


def test_a_long_line_is_broken_between_words_and_a_number_stays_with_its_unit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys, "stdout", Narrow())
    lines = folded("the delay may grow from 27.34 ms to 103 ms", "  ", hang=2).splitlines()
    assert lines == ["  the delay may grow from", "    27.34 ms to 103 ms"]


def test_in_a_pipe_a_line_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    words = "the delay may grow from 27.34 ms to 103 ms"
    assert folded(words, "  ") == f"  {words}"


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("stability", ["delay margin", "0.987 Hz", "11.81 %", "0.9861 Hz", "10.08 %", "stable", "103 ms"]),
        ("check", ["fits together", "30720 samples", "809.5 kN", "36.5 mm", "10 m/s^2", "28.9 mm"]),
    ],
)
def test_verdicts_and_numbers_are_whole_on_a_narrow_terminal(
    command: str, told: list[str], columns: int, tmp_path: Path, environment: dict[str, str]
) -> None:
    terminal = Terminal([*RTHS, command, "chen_ricles_2010"], tmp_path, environment, columns)
    try:
        assert terminal.end() == 0
        lines = terminal.shown.splitlines()
        assert max(map(len, lines)) <= columns
        for words in told:
            assert any(words in line for line in lines), words
    finally:
        terminal.close()
