# SPDX-License-Identifier: Apache-2.0
"""``rths scoreboard``: compare all compensators, with the same cases, plants and noise."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from rths_nodes.analysis import overlay
from rths_nodes.analysis.published_indices import legend
from rths_nodes.analysis.study_table import HIGH
from rths_nodes.analysis.units import FORMATS, plain
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.studies import competition
from rths_nodes.app.studies.engine import Where
from rths_nodes.app.studies.scoreboard import Conditions, Scoreboard, drawings
from rths_nodes.app.studies.study import Hooks
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.options import AUTO
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files

BENCHMARK = "rths_benchmark_2020"
PLANTS = 100
OF_RUNS = (
    *("set", "cases", "laws", "settings", "training", "plants", "records", "indices", "rank", "response"),
    *("out", "entry", "figures", "format", "width", "json"),
)
OF_PLACE = ("jobs", "scheduler", "run_programs")
DEFAULTS = {"benchmark": BENCHMARK, "tune": 0, "training_plants": 2, "noise_seeds": 3, "seed": 1}


def add_arguments(add: arguments.Arguments) -> None:
    add("benchmark", "name of a shipped scenario or path of a YAML file", DEFAULTS["benchmark"], nargs="?")
    add.several("--set SECTION.KEY=VALUE", "value to change in the scenario, for all compensators")
    text = "cases to run; default: all cases that set no compensator"
    add.names("--cases NAME,...", text)
    text = "compensators to compare; default: all registered compensators, and all compensators in --settings"
    add.names("--laws NAME,...", text)
    text = (
        "settings by compensator: name of a shipped file (e.g. of the benchmark) or path of a YAML file, as "
        "written by this command; missing settings are identified"
    )
    add("--settings FILE", text, "")
    add("--tune N", "number of candidates for tuning each compensator before scoring", DEFAULTS["tune"])
    add.several("--training SECTION.KEY=VALUE", "value to change for tuning only, e.g. duration=10")
    text = "number of plants for tuning, in addition to the nominal plant (ignored without scatter)"
    add("--training-plants N", text, DEFAULTS["training_plants"])
    add("--noise-seeds N", "number of noise seeds for scoring", DEFAULTS["noise_seeds"])
    add("--seed N", "seed of the scored plants", DEFAULTS["seed"])
    text = f"number of scored plants in addition to the nominal plant; default: {PLANTS} with scatter, otherwise 0"
    add("--plants N", text, type=int)
    text = "published ground motions to use for scoring; default: the ground motion of the scenario"
    add.names("--records NAME,...", text)
    text = "indices to show; default: the indices of the benchmark, or J1,J2,J3,max_error_mm"
    add.names("--indices NAME,...", text)
    add("--rank INDEX", "index for ranking and tuning; default: the tracking error of the true displacement")
    add("--response INDEX", "index of the response, to be plotted against the ranking index")
    add("--out DIR", "folder of the results; default: runs/<scenario>_scoreboard")
    text = "also write an entry that others can verify: scenario, settings, seeds, scores, code, digest"
    add("--entry FILE", text)
    group = add.exclusive()
    group("--verify ENTRY", "run an entry again and compare the scores; the exit code is 3 if scores differ")
    add.flags(run_programs="with --verify: run the programs in the entry, such as FMUs, with all your permissions")
    group("--merge ENTRY", "print one table of several entries, without running them", nargs="+")
    add.figures("figures")
    add.where()
    add.json()


def run(options: arguments.Options) -> int:
    if options.merge:
        text = "has no effect, because --merge runs nothing"
        arguments.refuse_idle(options, (*OF_RUNS, *OF_PLACE), text, DEFAULTS | {"engine": AUTO})
        return _merged([Path(path) for path in options.merge])
    where = arguments.where(options)
    if options.verify:
        text = "has no effect with --verify; the entry has all conditions"
        arguments.refuse_idle(options, OF_RUNS, text, DEFAULTS)
        return _verified(Path(options.verify), where, options.run_programs)
    arguments.refuse_idle(options, ("run_programs",), "requires --verify")
    width = arguments.figures_width(options)
    conditions = Conditions(**{field.name: vars(options)[field.name] for field in fields(Conditions)})
    loaded = files.load(options.benchmark, options.set)
    folder = Path(options.out or Path(terminal.RUNS) / f"{loaded.name}_scoreboard")
    terminal.check_makable(folder / competition.SCORES)
    if options.entry:
        terminal.check_writable(Path(options.entry))
    with terminal.writing(folder):
        hooks = Hooks(terminal.progress, terminal.tell)
        board = competition.compete(loaded, conditions, folder, where, hooks)
    if options.figures:
        from rths_nodes.analysis.figures.drawing import for_print, write_figures

        with terminal.writing(folder):
            drawn = for_print(drawings(board), width)
            write_figures(drawn, folder / "figures", options.format or FORMATS[0])
    terminal.output(options.json, _data(loaded.name, board), _print, board, folder)
    return ExitCode.FINISHED


def _verified(path: Path, where: Where, run_programs: bool) -> int:
    content = competition.read_entry(path)
    if not run_programs and (programs := competition.programs(content)):
        raise ConfigError(
            f"{path}: contains programs that would run with all your permissions ({'; '.join(programs)}). If "
            "you trust the authors, give --run-programs"
        )
    with tempfile.TemporaryDirectory(prefix="rths_entry_") as folder:
        rows, differs = competition.verify(content, Path(folder), where, Hooks(terminal.progress, terminal.tell))
    for difference in differs:
        print(f"code: {difference}")
    for row, problems in rows.items():
        print(f"{row}: {'; '.join(problems) or 'as stated'}")
    wrong = sum(map(bool, rows.values()))
    print(f"{path}: {f'{wrong} of {len(rows)} rows differ' if wrong else 'verified'}")
    return ExitCode.TRIPPED if wrong else ExitCode.FINISHED


def _merged(paths: Sequence[Path]) -> int:
    names = overlay.names([path.resolve().with_suffix("").parts for path in paths])
    rows, indices = competition.merged(dict(zip(names, map(competition.read_entry, paths), strict=True)))
    cells = (
        [name, score.law, score.block, *(plain(score.high.get(index)) for index in indices), score.outcome()]
        for name, score in rows
    )
    terminal.table(cells, "entry", "compensator", "block", numbers=indices, last=["outcome"])
    return ExitCode.FINISHED


def _data(name: str, board: Scoreboard) -> dict[str, object]:
    identified = board.identified
    return {
        "benchmark": name,
        "identified": {"delay_s": identified.delay, "rms_m": identified.rms, "notes": list(identified.notes)},
        "scores": [dict(vars(score)) for score in board.scores],
        "published": [
            {"case": name, "note": case.note, "values": dict(case.published)}
            for name, case in board.published.items()
        ],
    }


def _print(board: Scoreboard, folder: Path) -> None:
    from rich.text import Text

    table, scores = board.table, board.scores
    terminal.tell(board.identified.notes)
    usable = sum(score.kind == "stable" for score in scores)
    first = f"best {scores[0].law}, {board.headings[0]} {plain(scores[0].high.get(table.indices[0]))}"
    quantiles = f"{HIGH:g} % quantiles of {len(table)} runs"
    terminal.say(f"{table.scenario}: {first}; {usable} of {len(scores)} stable; {quantiles}")
    several = len({score.block for score in scores if score.runs}) > 1
    heads = "place", "compensator", *(["block"] if several else [])
    rows: list[list[str | Text]] = []
    colours = {"stable": "green", "published": "dim"}
    for rank, law, block, values, remark, kind in board.rows:
        cells = [plain(values.get(index)) for index in table.indices]
        name = Text(law, "dim" if kind == "published" else "")
        rows.append([rank, name, *([block] if several else []), *cells, Text(remark, colours.get(kind, "red"))])
    terminal.table(rows, *heads, numbers=board.headings, last=["outcome"])
    if about := legend(board.which, table.indices):
        terminal.say(about)
    print(f"page: {folder / competition.PAGE}")
