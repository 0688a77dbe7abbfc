# SPDX-License-Identifier: Apache-2.0
"""``rths stability``: judge whether the loop of a test is stable, without running the test."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rths_nodes.analysis.units import PERCENT, shown
from rths_nodes.app.commands import arguments, terminal

if TYPE_CHECKING:
    from rths_nodes.analysis.stability.judgement import Judgement


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_scenario(parser)
    arguments.add_figure(parser, "stiffness, damping, margins")
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    from rths_nodes.app import api

    loaded = arguments.scenario(options)
    figure = arguments.figure(options)
    judgement = api.stability(loaded)
    data = {"scenario": loaded.name} | judgement.data()
    terminal.output(options.json, data, _print_stability, loaded.name, judgement)
    if figure:
        from rths_nodes.analysis.figures.analyses import stability as draw

        arguments.save_figure(options, figure, draw, judgement, loaded.name)
    return 0


def _print_stability(name: str, judgement: Judgement) -> None:
    from rich.text import Text

    console = terminal.console()
    word, _, reason = judgement.verdict().partition(": ")
    line = Text(terminal.folded(f"{name}: {word}: {reason}", hang=2))
    line.stylize(f"bold {'green' if judgement.stable else 'red'}", len(name) + 2, len(name) + 2 + len(word))
    console.print(line, soft_wrap=True)
    places = [f" {axis}" if len(judgement.axes) > 1 else "" for axis in judgement.axes]
    apparent_of = [f"{name}{where}" for where in places for name in ("k*/k", "c*ω/k")]
    numbers = ("frequency", "damping", *apparent_of, "loop frequency", "loop damping")
    grid = terminal.grid("mode", numbers=numbers, last=[""])
    for number, mode in enumerate(judgement.modes, 1):
        pairs = zip(mode.apparent_stiffness, mode.apparent_damping, strict=True)
        apparent = [f"{value:.3f}" for pair in pairs for value in pair]
        loop = (
            shown(mode.loop_frequency, 1.0, "Hz"),
            shown(mode.loop_damping_ratio, PERCENT, "%"),
        )
        frequency_and_damping = (shown(mode.frequency, 1.0, "Hz"), shown(mode.damping_ratio, PERCENT, "%"))
        grid.add_row(
            str(number),
            *frequency_and_damping,
            *apparent,
            *loop,
            "stable" if mode.stable else "[bold red]UNSTABLE[/]",
        )
    terminal.show(console, grid)
    for statement in (*judgement.margins(), *(f"assumed: {statement}" for statement in judgement.assumptions)):
        terminal.say(f"  {statement}")
