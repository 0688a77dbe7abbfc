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

from rths_nodes.analysis.units import COLUMN, FORMATS, PAPER, STYLES, check_width
from rths_nodes.app.commands import terminal
from rths_nodes.app.page.process import PORT
from rths_nodes.app.studies import engine
from rths_nodes.app.studies.engine import Where
from rths_nodes.core.addresses import check_port
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.kernels import Function
from rths_nodes.loop.faults import KINDS
from rths_nodes.loop.options import AUTO, COMMAND, LOCKSTEP, PYTHON, REALTIME, STUDY_ENGINES, Option, options
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

Options = argparse.Namespace
FIGURES = (".png", ".svg", ".pdf")
SCENARIO = ("scenario", "--rig", "--set", "--case")
ASKED = "_ARGCOMPLETE"
"""Environment variable with which a shell requests completions (``register-python-argcomplete rths``)."""
Completer = Callable[[str, Options], Iterable[str]]


def complete_line(parser: argparse.ArgumentParser) -> None:
    if ASKED in os.environ:
        with suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)


def _offer(argument: Any, completer: Completer) -> None:
    def complete(prefix: str, parsed_args: Options, **_: object) -> list[str]:
        with suppress(ConfigError):
            return list(completer(prefix, parsed_args))
        return []

    argument.completer = complete


def _yaml_files(prefix: str, options: Options) -> list[str]:
    import argcomplete

    return list(argcomplete.completers.FilesCompleter(("yaml", "yml"))(prefix))


def _shipped(kind: str) -> Completer:
    return lambda prefix, options: [*files.shipped(kind), *_yaml_files(prefix, options)]


def _cases(prefix: str, options: Options) -> list[str]:
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


class Arguments:
    """Declares arguments of a command or group. Usage of an instance: ``add("--out DIR", "folder to write")``."""

    def __init__(self, parser: argparse._ActionsContainer) -> None:
        self._parser = parser

    def __call__(
        self, form: str, text: str, default: object = None, completer: Completer | None = None, **more: Any
    ) -> None:
        """Add an argument. ``form`` is its name and metavar. The default is appended to the help ``text``."""
        name, _, metavar = form.partition(" ")
        if isinstance(default, (int, float)):
            more.setdefault("type", type(default))
        if default not in (None, "", []):
            text += f"; default: {default:g}" if isinstance(default, float) else f"; default: {default}"
        if name.startswith("-"):
            more.setdefault("action", _Stored)
        else:
            more.setdefault("type", _filled)
        argument = self._parser.add_argument(name, metavar=metavar or None, default=default, help=text, **more)
        if completer := completer or COMPLETERS.get(name):
            _offer(argument, completer)

    def several(self, form: str, text: str, **more: Any) -> None:
        self(form, f"{text}; may be repeated", [], action="append", **more)

    def names(self, form: str, text: str) -> None:
        self(form, text, "", type=names)

    def flags(self, **texts: str) -> None:
        for name, text in texts.items():
            self._parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)

    def hidden(self, name: str, **more: Any) -> None:
        self._parser.add_argument(name, help=argparse.SUPPRESS, **more)

    def removed(self, **replacements: str) -> None:
        """Declare removed options, which only cause an error. ``replacements`` maps each option to its message."""
        self._parser.set_defaults(removed={f"--{name.rstrip('_')}": text for name, text in replacements.items()})
        for name in replacements:
            self.hidden(f"--{name.rstrip('_')}", action=_Removed, nargs="?", dest=f"removed_{name}")

    def group(self, title: str) -> Arguments:
        return Arguments(self._parser.add_argument_group(title))

    def exclusive(self) -> Arguments:
        return Arguments(self._parser.add_mutually_exclusive_group())

    def option(self, option: Option, may_be_missing: bool = False) -> None:
        spec, form = option.spec, f"{option.name} {option.metavar}"
        more: dict[str, Any] = {"choices": spec.choices or None}
        if spec.kind == "flag":
            self._parser.add_argument(option.name, help=option.doc, action="store_true")
        elif spec.kind == "texts":
            self.several(form, option.doc, **more)
        else:
            if may_be_missing and option.required:
                more["nargs"] = "?"
            self(form, option.doc, None if option.required else option.default, **more)

    def scenario(self, may_be_missing: bool = False, names: Iterable[str] = SCENARIO) -> None:
        for name in names:
            self.option(options(COMMAND)[name], may_be_missing)

    def where(self) -> None:
        text = "number of parallel runs on this machine; default: one per processor"
        self("--jobs N", text, type=int)
        text = "address of a dask scheduler whose workers execute the runs, e.g. tcp://host:8786"
        self("--scheduler ADDRESS", text, "")
        self.engine()

    def engine(self) -> None:
        text = (
            "engine of the runs: python (stage by stage), kernels (a loop over kernels, where possible), "
            "compiled (this loop in C) or auto (compiled for many or long runs, otherwise kernels); all engines "
            "give identical results"
        )
        self("--engine", text, AUTO, choices=STUDY_ENGINES)

    def figure(self, text: str) -> None:
        self("--figure FILE", f"draw {text} (.png, .svg, .pdf)")
        text = "style of the figure: screen, or paper for a journal (embedded fonts, no title); default: screen"
        self("--style", text, choices=STYLES)
        text = "width of the figure with --style paper, mm (one column: 89, two columns: 183); default: 89"
        self("--width MM", text, type=float)

    def figures(self, folder: str) -> None:
        self.flags(figures=f"also write every figure, in the style for journals, to the folder {folder}")
        self("--format", "format of the figures; default: pdf", choices=FORMATS)
        text = "width of the figures, mm (one column: 89, two columns: 183); default: 89"
        self("--width MM", text, type=float)

    def recording(self, text: str = "folder of a recording") -> None:
        self("recording", text)

    def reference(self) -> None:
        text = "add the response of the entire structure, computed in one piece, to the report (slow)"
        self.flags(reference=text)

    def page_port(self) -> None:
        self("--page-port PORT", "with --page: TCP port of the page (0: any free port)", PORT)

    def json(self) -> None:
        self.flags(json="print one JSON object")


def _filled(text: str) -> str:
    if not text:  # Path("") is the current folder
        raise argparse.ArgumentTypeError("must not be empty")
    return text


class _Stored(argparse._StoreAction):
    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        if values == "":  # e.g. from an unset shell variable, which must not select the default
            raise ConfigError(f"{option}: must not be empty; leave the option out for its default")
        super().__call__(parser, namespace, values, option)


class _Removed(argparse.Action):
    def __call__(self, parser: object, namespace: Any, values: object, option: str | None = None) -> None:
        used = {word.partition("=")[0] for word in namespace.typed} | {self.option_strings[0]}
        raise ConfigError(*(f"{name}: was {text}" for name, text in namespace.removed.items() if name in used))


def chosen(parsed: Options) -> Data:
    return {
        option.spec.places[PYTHON]: getattr(parsed, name.lstrip("-").replace("-", "_"))
        for name, option in options(COMMAND).items()
        if name not in SCENARIO
    }


def scenario(options: Options) -> Scenario:
    return files.load(options.scenario, options.set, options.case, options.rig)


def in_realtime(scenario: Scenario, pace: str | None, watched: bool = False) -> bool:
    """Return true if the test runs in real time: if ``pace`` is realtime, the rig is real, or it is ``watched``.

    Raises ConfigError if ``pace`` is lockstep although the rig is real or ``watched``.
    """
    real = not Assembly(scenario).port.simulated
    if pace == LOCKSTEP and (real or watched):
        kind = type(scenario.port).type_name
        whose = f"the rig of the port {kind}" if real else "the watcher of this rig"
        raise ConfigError(f"--pace {LOCKSTEP}: must be left out, because {whose} has its own clock")
    return real or watched or pace == REALTIME


def where(options: Options) -> Where:
    return engine.chosen(options.jobs, options.scheduler, options.engine)


def check_least(options: Options, **least: float) -> None:
    for name, bound in least.items():
        if not bound <= (value := getattr(options, name)) < math.inf:
            finite = "" if value < bound else " and finite"
            raise ConfigError(f"--{name.replace('_', '-')} = {value}: must be >= {bound:g}{finite}")


def check_page_port(options: Options) -> None:
    if not options.page:
        refuse_idle(options, ("page_port",), "requires --page", {"page_port": PORT})
    check_port(options.page_port, "--page-port")


def refuse_idle(
    options: Options, names: Iterable[str], why: str, defaults: Mapping[str, object] | None = None
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


def check_purpose(options: Options, uses: Mapping[str, Iterable[str]]) -> None:
    """Raise ConfigError if an option that is set does not apply to the purpose (``--for``).

    ``uses`` maps each purpose to the names of its options.
    """
    for purpose, names in uses.items():
        unused = [name for name in names if name not in uses[options.purpose]]
        refuse_idle(options, unused, f"applies to --for {purpose}; must be left out with --for {options.purpose}")


def save_figure(options: Options, path: Path, draw: Function, *values: object) -> None:
    from rths_nodes.analysis.figures.drawing import save

    with terminal.writing(path, "" if options.json else "figure"):
        save(path, _figure_width(options), draw, *values)


def figure(options: Options) -> Path | None:
    """Return the path of the figure file, or None if ``--figure`` is not set.

    Raises ConfigError if a figure option is invalid or has no effect.
    """
    if not options.figure:
        refuse_idle(options, ("style", "width"), "requires --figure")
        return None
    _figure_width(options)
    path = Path(options.figure)
    if path.suffix.lower() not in FIGURES:
        raise ConfigError(f"{path}: the file name of a figure must end in one of {', '.join(FIGURES)}")
    terminal.check_writable(path)
    return path


def _figure_width(options: Options) -> float | None:
    if options.style == PAPER:
        return _width(options)
    refuse_idle(options, ("width",), f"requires --style {PAPER}")
    return None


def figures_width(options: Options) -> float:
    """Return the width of the figures in a folder, mm. Raises ConfigError if it is invalid or has no effect."""
    problems = Problems()
    if not options.figures:
        with problems.gathered():
            refuse_idle(options, ("format", "width"), "requires --figures")
    with problems.gathered():
        width = _width(options)
    problems.refuse()
    return width


def _width(options: Options) -> float:
    width = COLUMN if options.width is None else float(options.width)
    check_width(width)
    return width


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
