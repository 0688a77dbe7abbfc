# SPDX-License-Identifier: Apache-2.0
"""Arguments shared by several sub-commands."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rths_nodes.analysis.paper import COLUMN, FORMATS, PAPER, STYLES, check_width
from rths_nodes.app.commands import terminal
from rths_nodes.app.page.process import PORT
from rths_nodes.app.studies import engine
from rths_nodes.app.studies.engine import Where
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.kernels import Function
from rths_nodes.loop.faults.kinds import KINDS
from rths_nodes.loop.options import AUTO, COMMAND, LOCKSTEP, PYTHON, REALTIME, STUDY_ENGINES, Option, options
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

Parser = argparse._ActionsContainer
FIGURES = (".png", ".svg", ".pdf")
SCENARIO = ("scenario", "--rig", "--set", "--case")
ASKED = "_ARGCOMPLETE"
"""Environment variable with which a shell requests completions (``register-python-argcomplete rths``)."""
Completer = Callable[[str, argparse.Namespace], Iterable[str]]


def complete_line(parser: argparse.ArgumentParser) -> None:
    if ASKED in os.environ:
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)


def _offer(argument: Any, completer: Completer) -> None:
    def complete(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        with suppress(ConfigError):
            return list(completer(prefix, parsed_args))
        return []

    argument.completer = complete


def _yaml_files(prefix: str, options: argparse.Namespace) -> list[str]:
    import argcomplete

    return list(argcomplete.completers.FilesCompleter(("yaml", "yml"))(prefix))


def _shipped(kind: str) -> Completer:
    return lambda prefix, options: [*files.shipped(kind), *_yaml_files(prefix, options)]


def _cases(prefix: str, options: argparse.Namespace) -> list[str]:
    source = options.benchmark if "benchmark" in options else options.scenario
    return list(files.load(source).cases)


POSITIONAL = ("scenario", "benchmark")
COMPLETERS: dict[str, Completer] = {
    **dict.fromkeys(POSITIONAL, _shipped(files.SCENARIO)),
    **dict.fromkeys(("rig", "--rig"), _shipped(files.RIG)),
    **dict.fromkeys(("--case", "--cases"), _cases),
    **dict.fromkeys(("study", "--answers"), _yaml_files),
    "--settings": _shipped(files.SETTINGS),
    "--fault": lambda prefix, options: [f"{kind}@" for kind in KINDS],
}


def add_scenario(parser: argparse.ArgumentParser, may_be_missing: bool = False) -> None:
    for name in SCENARIO:
        add_option(parser, options(COMMAND)[name], may_be_missing)


def add_option(parser: Parser, option: Option, may_be_missing: bool = False) -> None:
    spec = option.spec
    more: dict[str, Any] = {"choices": spec.choices or None}
    if spec.kind == "flag":
        parser.add_argument(option.name, help=option.doc, action="store_true")
    elif spec.kind == "texts":
        add_several(parser, option.name, option.metavar, option.doc, **more)
    else:
        if may_be_missing and option.required:
            more["nargs"] = "?"
        add(parser, option.name, option.metavar, option.doc, None if option.required else option.default, **more)


def chosen(parsed: argparse.Namespace) -> Data:
    return {
        option.spec.places[PYTHON]: getattr(parsed, name.lstrip("-").replace("-", "_"))
        for name, option in options(COMMAND).items()
        if name not in SCENARIO
    }


def scenario(options: argparse.Namespace) -> Scenario:
    return files.load(options.scenario, options.set, options.case, options.rig)


def in_realtime(scenario: Scenario, pace: str | None, watched: bool = False) -> bool:
    """Return true if ``pace`` is realtime, or if the rig is real or ``watched``.

    Raises ConfigError for lockstep with such a rig.
    """
    real = not Assembly(scenario).port.simulated
    if pace == LOCKSTEP and (real or watched):
        kind = type(scenario.port).type_name
        whose = f"the rig of the port {kind}" if real else "the watcher of this rig"
        raise ConfigError(f"--pace {LOCKSTEP}: must be left out, because {whose} has its own clock")
    return real or watched or pace == REALTIME


def add(
    parser: Parser,
    name: str,
    metavar: str,
    text: str,
    default: object = None,
    completer: Completer | None = None,
    **more: Any,
) -> None:
    if isinstance(default, (int, float)):
        more.setdefault("type", type(default))
    if default not in (None, "", []):
        text += f"; default: {default:g}" if isinstance(default, float) else f"; default: {default}"
    argument = parser.add_argument(name, metavar=metavar or None, default=default, help=text, **more)
    if completer := completer or COMPLETERS.get(name):
        _offer(argument, completer)


def add_several(parser: Parser, name: str, metavar: str, text: str, **more: Any) -> None:
    add(parser, name, metavar, f"{text}; may be repeated", [], action="append", **more)


def add_flags(parser: Parser, **texts: str) -> None:
    for name, text in texts.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)


class _Renamed(argparse.Action):
    def __call__(self, parser: object, namespace: object, values: object, option: str | None = None) -> None:
        raise ConfigError(f"{option}: was renamed; use {self.const}")


def add_renamed(parser: Parser, **replacements: str) -> None:
    for name, new in replacements.items():
        option = f"--{name.rstrip('_')}"
        parser.add_argument(
            option, action=_Renamed, const=new, nargs="?", dest=f"renamed_{name}", help=argparse.SUPPRESS
        )


def add_where(parser: Parser) -> None:
    text = "number of parallel runs on this machine; default: one for each processor"
    add(parser, "--jobs", "N", text, type=int)
    text = "address of a dask scheduler whose workers execute the runs, e.g. tcp://host:8786"
    add(parser, "--scheduler", "ADDRESS", text, "")
    add_engine(parser)


def add_engine(parser: Parser) -> None:
    text = (
        "engine of the runs: python (stage by stage), kernels (a loop over kernels if the run has one), "
        "compiled (this loop in C) or auto (compiled for many or long runs, otherwise kernels); all engines give "
        "identical results"
    )
    add(parser, "--engine", "", text, AUTO, choices=STUDY_ENGINES)


def where(options: argparse.Namespace) -> Where:
    return engine.chosen(options.jobs, options.scheduler, options.engine)


def check_least(options: argparse.Namespace, **least: float) -> None:
    for name, bound in least.items():
        if not bound <= (value := getattr(options, name)) < math.inf:
            finite = "" if value < bound else " and finite"
            raise ConfigError(f"--{name.replace('_', '-')} = {value}: must be >= {bound:g}{finite}")


def refuse_idle(
    options: argparse.Namespace, names: Iterable[str], why: str, defaults: Mapping[str, object] | None = None
) -> None:
    unset = dict.fromkeys(names) | dict(defaults or {})
    values = {name: value for name in unset if (value := getattr(options, name)) is not False}
    idle = [_written(name, value) for name, value in values.items() if value not in (None, "", [], unset[name])]
    if idle:
        raise ConfigError(f"{', '.join(idle)}: {why}")


def _written(name: str, value: object) -> str:
    option = name if name in POSITIONAL else f"--{name.rstrip('_').replace('_', '-')}"
    entries = value if isinstance(value, (list, tuple)) else [] if value is True else [value]
    return " ".join([option, *map(str, entries)])


def check_purpose(options: argparse.Namespace, uses: Mapping[str, Iterable[str]]) -> None:
    """Raise ConfigError if an option is set that does not apply to the purpose (``--for``).

    ``uses`` maps each purpose to the names of its options.
    """
    for purpose, names in uses.items():
        unused = [name for name in names if name not in uses[options.purpose]]
        refuse_idle(options, unused, f"applies to --for {purpose}; must be left out with --for {options.purpose}")


def add_figure(parser: Parser, text: str) -> None:
    add(parser, "--figure", "FILE", f"draw {text} (.png, .svg, .pdf)")
    text = "style of the figure: screen, or paper for a journal (embedded fonts, no title); default: screen"
    add(parser, "--style", "", text, choices=STYLES)
    text = "width of the figure with --style paper, mm (one column: 89, two columns: 183); default: 89"
    add(parser, "--width", "MM", text, type=float)


def add_figures(parser: Parser, folder: str) -> None:
    add_flags(parser, figures=f"also write every figure as a file for a journal, in the folder {folder}")
    add(parser, "--format", "", "format of the figures; default: pdf", choices=FORMATS)
    text = "width of the figures, mm (one column: 89, two columns: 183); default: 89"
    add(parser, "--width", "MM", text, type=float)


def save_figure(options: argparse.Namespace, path: Path, draw: Function, *values: object) -> None:
    from rths_nodes.analysis.figures.drawing import save

    with terminal.writing(path, "" if options.json else "figure"):
        save(path, figure_width(options), draw, *values)


def figure(options: argparse.Namespace) -> Path | None:
    """Return the path of the figure file, or None without ``--figure``.

    Raises ConfigError if an option of the figure is invalid.
    """
    figure_width(options)
    if not options.figure:
        return None
    path = Path(options.figure)
    if path.suffix.lower() not in FIGURES:
        raise ConfigError(f"{path}: the name of a figure must end in one of {', '.join(FIGURES)}")
    terminal.check_writable(path)
    return path


def figure_width(options: argparse.Namespace) -> float | None:
    """Return the width (mm) of a figure in the style ``paper``, or None in another style.

    Raises ConfigError if an option is invalid or has no effect.
    """
    if not options.figure:
        refuse_idle(options, ("style", "width"), "requires --figure")
    if options.style != PAPER:
        refuse_idle(options, ("width",), f"requires --style {PAPER}")
        return None
    check_width(_width(options))
    return _width(options)


def figures_width(options: argparse.Namespace) -> float:
    """Return the width of the figures in a folder, mm. Raises the errors of :func:`figure_width`."""
    problems = Problems()
    if not options.figures:
        with problems.gathered():
            refuse_idle(options, ("format", "width"), "requires --figures")
    with problems.gathered():
        check_width(_width(options))
    problems.refuse()
    return _width(options)


def _width(options: argparse.Namespace) -> float:
    return COLUMN if options.width is None else float(options.width)


def add_recording(parser: argparse.ArgumentParser, description: str = "folder of a recording") -> None:
    parser.add_argument("recording", help=description)


def add_reference(parser: Parser) -> None:
    text = "add the response of the entire structure, computed in one piece, to the report (slow)"
    add_flags(parser, reference=text)


def add_page_port(parser: Parser) -> None:
    add(parser, "--page-port", "PORT", "with --page: TCP port of the page (0: any free port)", PORT)


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def add_json(parser: Parser) -> None:
    add_flags(parser, json="print one JSON object")
