# SPDX-License-Identifier: Apache-2.0
"""``rths stability``: judge whether the loop of a test is stable, without running the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rths_nodes.analysis.units import PERCENT, shown
from rths_nodes.app import api
from rths_nodes.app.commands import arguments, terminal

if TYPE_CHECKING:
    from rths_nodes.analysis.stability.judgement import Judgement


def stability_arguments(add: arguments.Arguments) -> None:
    add.scenario()
    add.figure("stiffness, damping, margins")
    add.json()


def stability_command(options: arguments.Options) -> None:
    loaded = arguments.scenario(options)
    figure = arguments.figure(options)
    judgement = api.stability(loaded)
    data = {"scenario": loaded.name} | judgement.data()
    terminal.output(options.json, data, _print_stability, loaded.name, judgement)
    if figure:
        from rths_nodes.analysis.figures.analyses import stability as draw

        arguments.save_figure(options, figure, draw, judgement, loaded.name)


def _print_stability(name: str, judgement: Judgement) -> None:
    from rich.text import Text

    word, _, reason = judgement.verdict().partition(": ")
    line = Text(terminal.folded(f"{name}: {word}: {reason}", hang=2))
    line.stylize(f"bold {'green' if judgement.stable else 'red'}", len(name) + 2, len(name) + 2 + len(word))
    terminal.console().print(line, soft_wrap=True)
    places = [f" {axis}" if len(judgement.axes) > 1 else "" for axis in judgement.axes]
    apparent_of = [f"{name}{where}" for where in places for name in ("k*/k", "c*ω/k")]
    numbers = ("frequency", "damping", *apparent_of, "loop frequency", "loop damping")
    rows = []
    for number, mode in enumerate(judgement.modes, 1):
        pairs = zip(mode.apparent_stiffness, mode.apparent_damping, strict=True)
        apparent = [f"{value:.3f}" for pair in pairs for value in pair]
        mode_alone = shown(mode.frequency, 1.0, "Hz"), shown(mode.damping_ratio, PERCENT, "%")
        loop = shown(mode.loop_frequency, 1.0, "Hz"), shown(mode.loop_damping_ratio, PERCENT, "%")
        verdict = "stable" if mode.stable else "[bold red]UNSTABLE[/]"
        rows.append([str(number), *mode_alone, *apparent, *loop, verdict])
    terminal.table(rows, "mode", numbers=numbers, last=[""])
    for statement in (*judgement.margins(), *(f"assumed: {statement}" for statement in judgement.assumptions)):
        terminal.say(f"  {statement}")
