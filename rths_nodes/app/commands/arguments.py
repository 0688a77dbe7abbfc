# SPDX-License-Identifier: Apache-2.0
"""Arguments shared by several sub-commands."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rths_nodes.analysis.paper import COLUMN, FORMATS, PAPER, STYLES, check_width
from rths_nodes.app.commands import completion, terminal
from rths_nodes.app.page.process import PORT
from rths_nodes.app.studies import engine
from rths_nodes.app.studies.engine import Where
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.kernels import Function
from rths_nodes.loop.options import AUTO, COMMAND, LOCKSTEP, PYTHON, REALTIME, STUDY_ENGINES, Option, options
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

Parser = argparse._ActionsContainer
SCENARIO = ("scenario", "--rig", "--set", "--case")
"""Command-line arguments that select a scenario."""
COMPLETERS = {
    "scenario": completion.scenarios,
    "--rig": completion.rigs,
    "--case": completion.cases,
    "--fault": completion.faults,
}


def add_scenario(parser: argparse.ArgumentParser, may_be_missing: bool = False) -> None:
    for name in SCENARIO:
        add_option(parser, options(COMMAND)[name], may_be_missing)


def add_option(parser: Parser, option: Option, may_be_missing: bool = False) -> None:
    if option.spec.kind == "flag":
        parser.add_argument(option.name, help=option.doc, action="store_true")
        return
    several, settings = option.spec.kind == "texts", dict[str, Any](choices=option.spec.choices or None)
    if option.metavar:
        settings["metavar"] = option.metavar
    if several:
        settings |= {"action": "append", "default": []}
    elif not option.required:
        settings["default"] = option.default
    if may_be_missing and option.required:
        settings["nargs"] = "?"
    suffix = "; may be repeated" if several else "; default: %(default)s" if settings.get("default") else ""
    argument = parser.add_argument(option.name, help=option.doc + suffix, **settings)
    if option.name in COMPLETERS:
        completion.offer(argument, COMPLETERS[option.name])


def chosen(parsed: argparse.Namespace) -> Data:
    """Return the options of a run by their Python names, except the options that select the scenario."""
    return {
        option.spec.places[PYTHON]: getattr(parsed, name.lstrip("-").replace("-", "_"))
        for name, option in options(COMMAND).items()
        if name not in SCENARIO
    }


def scenario(options: argparse.Namespace) -> Scenario:
    return files.load(options.scenario, options.set, options.case, options.rig)


def in_realtime(scenario: Scenario, pace: str | None, watched: bool = False) -> bool:
    """Return whether to run in real time: true on a real rig, or if ``watched``. Raises ConfigError if ``pace`` is
    lockstep there.
    """
    real = not Assembly(scenario).port.simulated
    if pace == LOCKSTEP and (real or watched):
        kind = type(scenario.port).type_name
        whose = f"the rig of the port {kind}" if real else "the watcher of this rig"
        raise ConfigError(f"--pace {LOCKSTEP}: {whose} has a clock of its own; leave it out")
    return real or watched or pace == REALTIME


def add_several(
    parser: Parser,
    name: str,
    metavar: str,
    description: str,
    completer: completion.Completer | None = None,
    **more: Any,
) -> None:
    argument = parser.add_argument(name, action="append", default=[], metavar=metavar, help=description, **more)
    if completer is not None:
        completion.offer(argument, completer)


class _Renamed(argparse.Action):
    """Refuses an option of earlier versions and names its replacement."""

    def __call__(self, parser: object, namespace: object, values: object, option: str | None = None) -> None:
        raise ConfigError(f"{option}: was renamed; use {self.const}")


def add_renamed(parser: Parser, **replacements: str) -> None:
    """Add hidden options of earlier versions, by their names without dashes."""
    for name, new in replacements.items():
        option = f"--{name.rstrip('_')}"
        parser.add_argument(
            option, action=_Renamed, const=new, nargs="?", dest=f"renamed_{name}", help=argparse.SUPPRESS
        )


def add_counts(parser: Parser, **counts: tuple[int, str]) -> None:
    for name, (default, description) in counts.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(
            option, type=int, default=default, metavar="N", help=f"{description}; default: %(default)s"
        )


def add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="runs at a time on this machine; default: one for each processor"
    )
    description = "dask scheduler that has the runs done by its workers, e.g. tcp://host:8786"
    parser.add_argument("--scheduler", default="", metavar="ADDRESS", help=description)
    add_engine(parser)


def add_engine(parser: argparse.ArgumentParser) -> None:
    description = (
        "how: python, stage by stage; kernels, by a loop over kernels where a run has one; compiled, by that loop "
        "in C; with the same bits; auto: compiled where runs are many or long, else kernels"
    )
    parser.add_argument("--engine", choices=STUDY_ENGINES, default=AUTO, help=description)


def where(options: argparse.Namespace) -> Where:
    return engine.chosen(options.jobs, options.scheduler, options.engine)


def check_least(options: argparse.Namespace, **least: float) -> None:
    for name, bound in least.items():
        if not getattr(options, name) >= bound:
            raise ConfigError(f"--{name.replace('_', '-')} = {getattr(options, name)}: must be >= {bound:g}")


def refuse_idle(options: argparse.Namespace, names: Iterable[str], why: str) -> None:
    """Raise ConfigError if one of the options ``names`` has a value, because it would have no effect."""
    values = {name.rstrip("_").replace("_", "-"): getattr(options, name) for name in names}
    idle = [
        f"--{name} {value}" for name, value in values.items() if value is not False and value not in (None, "", [])
    ]
    if idle:
        raise ConfigError(f"{', '.join(idle)}: {why}")


def check_purpose(options: argparse.Namespace, uses: Mapping[str, Iterable[str]]) -> None:
    """Raise ConfigError for an option that belongs to another purpose; ``uses``: option names by purpose."""
    for purpose, names in uses.items():
        unused = [name for name in names if name not in uses[options.purpose]]
        refuse_idle(options, unused, f"is for --for {purpose}, not for {options.purpose}")


def add_figure(parser: Parser, text: str) -> None:
    parser.add_argument("--figure", metavar="FILE", help=f"draw {text} (.png, .svg, .pdf)")
    description = (
        "of the figure: screen; or paper, for a journal: letters are part of the file, lines differ in grey, "
        "no title; default: screen"
    )
    parser.add_argument("--style", choices=STYLES, help=description)
    description = "of the figure with --style paper, mm; default: 89, one column; two columns: 183"
    parser.add_argument("--width", type=float, metavar="MM", help=description)


def add_figures(parser: Parser, folder: str) -> None:
    """Add the options for print figures in a ``folder``."""
    description = f"also a folder {folder} with every figure as a file of its own, for a journal, readable in grey"
    parser.add_argument("--figures", action="store_true", help=description)
    parser.add_argument("--format", choices=FORMATS, help="of the figures; default: pdf")
    description = "of the figures, mm; default: 89, one column; two columns: 183"
    parser.add_argument("--width", type=float, metavar="MM", help=description)


def save_figure(options: argparse.Namespace, path: Path, draw: Function, *values: object) -> None:
    """Save the figure drawn by ``draw(*values)`` to ``path``. Raises OSError, ConfigError."""
    from rths_nodes.analysis.figures.style import save

    with terminal.writing(path, "" if options.json else "figure"):
        save(path, figure_width(options), draw, *values)


def figure(options: argparse.Namespace) -> Path | None:
    """Return the path of the figure, or None. Raises ConfigError if the path or an option of the figure is
    invalid.
    """
    figure_width(options)
    return terminal.figure_path(options.figure)


def figure_width(options: argparse.Namespace) -> float | None:
    """Return the width of the figure on paper, mm; None for the screen. Raises ConfigError for options without
    effect.
    """
    if not options.figure:
        refuse_idle(options, ("style", "width"), "goes with --figure only")
    if options.style != PAPER:
        refuse_idle(options, ("width",), f"goes with --style {PAPER} only")
        return None
    check_width(_width(options))
    return _width(options)


def figures_width(options: argparse.Namespace) -> float:
    """Return the width of the figures in a folder, mm. Raises ConfigError for their options without
    ``--figures``.
    """
    problems = Problems()
    if not options.figures:
        with problems.gathered():
            refuse_idle(options, ("format", "width"), "goes with --figures only")
    with problems.gathered():
        check_width(_width(options))
    problems.refuse()
    return _width(options)


def _width(options: argparse.Namespace) -> float:
    return COLUMN if options.width is None else float(options.width)


def add_recording(parser: argparse.ArgumentParser, description: str = "folder of a recording") -> None:
    parser.add_argument("recording", help=description)


def add_reference(parser: argparse.ArgumentParser) -> None:
    description = "in the report, also the response of the whole structure computed in one piece (takes its time)"
    parser.add_argument("--reference", action="store_true", help=description)


def add_page_port(parser: argparse.ArgumentParser) -> None:
    description = "with --page: its TCP port, 0 for any; default: %(default)s, refused if it is taken"
    parser.add_argument("--page-port", type=int, default=PORT, metavar="PORT", help=description)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
