# SPDX-License-Identifier: Apache-2.0
"""Commands that assess or predict a test before it is run.

``rths stability``: determine whether the loop of a test is stable, without running the test.

``rths corridor``: predict the corridor of a test from simulated runs on different plants.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.units import PERCENT, shown
from rths_nodes.app import api
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import runs
from rths_nodes.app.studies.engine import Progress, Where, summed
from rths_nodes.app.studies.study import plants
from rths_nodes.core.errors import ConfigError, Stopped
from rths_nodes.core.samples import Array
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.files import replace
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.monitor import QUANTITIES, Corridor, corridor_quantities
from rths_nodes.recording.run import Run

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
    rows: list[list[str | Text]] = []
    for number, mode in enumerate(judgement.modes, 1):
        pairs = zip(mode.apparent_stiffness, mode.apparent_damping, strict=True)
        apparent = [f"{value:.3f}" for pair in pairs for value in pair]
        mode_alone = shown(mode.frequency, 1.0, "Hz"), shown(mode.damping_ratio, PERCENT, "%")
        loop = shown(mode.loop_frequency, 1.0, "Hz"), shown(mode.loop_damping_ratio, PERCENT, "%")
        verdict = Text("stable") if mode.stable else Text("UNSTABLE", "bold red")
        rows.append([str(number), *mode_alone, *apparent, *loop, verdict])
    terminal.table(rows, "mode", numbers=numbers, last=[""])
    for statement in (*judgement.margins(), *(f"assumed: {statement}" for statement in judgement.assumptions)):
        terminal.say(f"  {statement}")


def corridor_arguments(add: arguments.Arguments) -> None:
    add.scenario()
    add("--out FILE", "file to write (.npz)", required=True)
    add("--plants N", "number of plants drawn from the scenario's scatter, in addition to the nominal plant", 20)
    add("--seed N", "seed of the plants", 1)
    add("--margin SHARE", "width added to each side of a band, as a fraction of the quantity's range", 0.05)
    add.where()
    add.json()


def corridor_command(options: arguments.Options) -> None:
    arguments.check_least(options, plants=1, seed=0, margin=0.0)
    scenario, out, where = arguments.scenario(options), Path(options.out), arguments.where(options)
    if out.suffix != ".npz":
        raise ConfigError(f"--out {out}: must end in .npz")
    terminal.check_writable(out)
    where = runs.decided(where, options.plants * scenario.samples, [scenario], terminal.tell)
    with terminal.progress(scenario.name) as progress:
        number, seed, margin = options.plants, options.seed, options.margin
        corridor = predicted(scenario, number, seed, margin, where, summed(progress))
    with terminal.writing(out, "" if options.json else "corridor"):
        corridor.save(out)
    widths = np.nanmax(corridor.upper - corridor.lower, axis=1)
    names = [name for name, _ in QUANTITIES]
    widest = {axis: dict(zip(names, widths[:, n].tolist(), strict=True)) for n, axis in enumerate(corridor.axes)}
    if options.json:
        terminal.print_json({"scenario": scenario.name, "corridor": str(out), "widest": widest})
        return
    for axis, row in widest.items():
        text = ", ".join(f"{name} {row[name]:.4g} {unit}" for name, unit in QUANTITIES)
        print(f"{axis}: largest width {text}")
    print(f"use: --set monitor.corridor={out}")


def predicted(
    scenario: Scenario, count: int, seed: int, margin: float, where: Where, progress: Progress | None = None
) -> Corridor:
    """Return the corridor of ``scenario`` for the nominal plant and ``count`` plants drawn with ``seed``.

    Each bound is widened by ``margin`` times the range of the quantity. Raises ConfigError if the
    scenario has no scatter, and Stopped if a run does not finish.
    """
    without = replace(scenario, [(["monitor", "corridor"], None), (["monitor", "corridor_action"], "indicate")])
    drawn = [plant.of(without) for plant in plants(without, count, seed, nominal=True)]
    lower = upper = nominal = np.empty(0)
    for number, result in runs.all_of(drawn, where, keep=True, progress=progress):
        if result.outcome != "finished" or result.run is None:
            problem = f"{drawn[number].name}: {result.outcome} at sample {result.samples}: {result.reason}"
            raise Stopped(f"no corridor, because the test must finish on every plant: {problem}", ExitCode.TRIPPED)
        values = histories(result.run)
        lower = np.fmin(lower, values) if lower.size else values
        upper = np.fmax(upper, values) if upper.size else values
        if number == 0:
            nominal = values
    wider = margin * (np.nanmax(upper, axis=1) - np.nanmin(lower, axis=1))[:, None, :]
    source = (
        f"rths corridor {scenario.name}: nominal plant and {count} plants drawn with seed {seed}, each side "
        f"widened by {100.0 * margin:g} %"
    )
    return Corridor(scenario.moved_axes, scenario.servo_rate, source, lower - wider, upper + wider, nominal)


def histories(run: Run) -> Array:
    """Return displacement (m), force (N) and energy (J) of a run, ``(3, n, n_axes)``; NaN in a soft start."""
    first = Evaluation(run).first_sample
    base = max(0, first - 1)
    result = np.full((3, *run.displacement.shape), np.nan)
    result[:, base + 1 :] = corridor_quantities(run.displacement[base:], run.force[base:])
    if first == 0:
        result[:, 0] = run.displacement[0], run.force[0], np.zeros_like(run.force[0])
    return result
