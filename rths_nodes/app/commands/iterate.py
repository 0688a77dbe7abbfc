# SPDX-License-Identifier: Apache-2.0
"""``rths iterate``: repeat a test, corrected by each run, until it converges."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.analysis.iteration.convergence import HISTORY, TRACKING, Row, Rule
from rths_nodes.analysis.units import MM, PERCENT, plain
from rths_nodes.app.commands import arguments, report, terminal
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.scenario.schema import Scenario

if TYPE_CHECKING:
    from rths_nodes.analysis.iteration.corrections import Settings
    from rths_nodes.app.studies.iteration import Iteration

RESULT = "iteration.json"
"""Name of the result file next to the recordings."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_scenario(parser, may_be_missing=True)
    help_next = (
        "without SCENARIO: read all runs of a series, and write history and scenario of the next run into FOLDER; "
        "nothing runs. FOLDER is of rths test, with run 1 as its rung g, or of rths iterate"
    )
    parser.add_argument("--next", metavar="FOLDER", help=help_next)
    words = (
        "tracking: the targets are known, the commands are corrected; history: the targets are the answer of the "
        "structure to the force of the last run; default: history where there is a structure"
    )
    parser.add_argument("--mode", choices=(TRACKING, HISTORY), help=words)
    parser.add_argument("--runs", type=int, default=Rule.runs, metavar="N", help="at most; default: %(default)s")
    words = "error that is enough, %% of the rms of the target; default: %(default)s"
    parser.add_argument("--tolerance", type=float, default=Rule.tolerance, metavar="PERCENT", help=words)
    words = "of mode history: constant, aitken, quasi_newton or model; default: %(default)s"
    parser.add_argument("--relaxation", default="model", metavar="NAME", help=words)
    words = "factor of constant, first one of aitken and quasi_newton; default: %(default)s"
    parser.add_argument("--omega", type=float, default=1.0, metavar="FACTOR", help=words)
    words = "frequency up to which errors are learned from; default: found in the first run"
    parser.add_argument("--cutoff", type=float, metavar="HZ", help=words)
    words = (
        "hold before a run that would have more than so many times the command, velocity or force of the first "
        "one, e.g. 1.1"
    )
    parser.add_argument("--within", type=float, metavar="FACTOR", help=words)
    words = "let the rig become another one from a run on, e.g. 2:axes.a.specimen.stiffness=1e6; may be repeated"
    arguments.add_several(parser, "--change", "RUN:KEY=VALUE", words)
    where = parser.add_mutually_exclusive_group()
    words = "folder of histories, recordings and the result; default: one in runs/"
    where.add_argument("--record", metavar="FOLDER", default="", help=words)
    where.add_argument("--no-record", action="store_true", help="do not record")
    arguments.add_figure(parser, "the convergence")
    parser.add_argument("--report", metavar="FILE", help="write a report (HTML) of the last run")
    arguments.add_engine(parser)
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Iterate; return 0 if converged, 3 if not, or the exit code of an unfinished run."""
    from rths_nodes.app.studies import iteration
    from rths_nodes.app.studies.engine import Where
    from rths_nodes.app.studies.next_run import SCENARIO

    if options.next:
        return _next(options)
    if not options.scenario:
        raise ConfigError("SCENARIO: missing: name a scenario, or a series by --next FOLDER")
    scenario, figure = arguments.scenario(options), terminal.figure_path(options.figure)
    if options.report:
        terminal.check_writable(Path(options.report))
    settings = _settings(options, scenario)
    iteration.check(scenario)
    where = Where(engine=options.engine)
    with _folder(options, scenario) as folder, orderly_stop() as interrupted:
        (folder / SCENARIO).write_text(dump(scenario.data()), encoding="utf-8")
        with terminal.progress(scenario.name) as progress:
            found = iteration.iterate(
                scenario, settings, folder, not options.no_record, where.engine_of, progress, _tell, interrupted
            )
        data = _data(scenario, settings, found)
        if not options.no_record:
            with terminal.writing(folder / RESULT):
                (folder / RESULT).write_text(json.dumps(terminal.finite(data), indent=2) + "\n", encoding="utf-8")
        if options.json:
            terminal.print_json(data)
        else:
            _print(scenario, settings, found)
            if not options.no_record:
                print(f"recordings: {folder}")
        _draw(options, scenario, settings, found, figure)
    return found.exit_code


def _settings(options: argparse.Namespace, scenario: Scenario) -> Settings:
    from rths_nodes.analysis.iteration.corrections import Settings

    return Settings(
        options.mode or (TRACKING if scenario.structure is None else HISTORY),
        Rule(options.runs, options.tolerance),
        options.relaxation,
        options.omega,
        options.cutoff,
        options.within,
        _changes(options.change),
    )


def _next(options: argparse.Namespace) -> int:
    """Write history and scenario of the next run of a series. Raises ConfigError."""
    from rths_nodes.app.studies import next_run

    needless = ("scenario", "set", "case", "rig", "change", "record", "no_record", "figure", "report")
    if extra := [f"--{name.replace('_', '-')}" for name in needless if getattr(options, name)]:
        raise ConfigError(
            f"{', '.join(extra)}: must be left out with --next, which reads the recordings of the series"
        )
    series = next_run.find(Path(options.next))
    following = next_run.write(series, _settings(options, series.scenario))
    file = series.scenario_of(following.number)
    if options.json:
        rehearsal = None if following.rehearsal is None else asdict(following.rehearsal)
        rows = [asdict(row) for row in following.rows]
        terminal.print_json(
            {"rows": rows, "reason": following.reason, "next": following.number, "rehearsal": rehearsal}
        )
        return 0
    for row in following.rows:
        _tell(row)
    if following.rehearsal is None:
        print(f"converged: {following.reason}; no run follows")
        return 0
    for axis, most in following.rehearsal.peaks.items():
        print(
            f"axes.{axis}: expected command {MM * most.command:.4g} mm, {MM * most.velocity:.4g} mm/s, force "
            f"{most.force:.6g} N"
        )
    print(f"run {following.number}: expected error {following.rehearsal.missed:.3g} %; written: {file}")
    folder, rig = file.with_suffix(""), series.scenario.rig_file
    command = f"rths run {file}" if rig is None else f"rths test {file} --rig RIG"
    print(f"next: {command} --record {folder}")
    return 0


def _draw(
    options: argparse.Namespace, scenario: Scenario, settings: Settings, found: Iteration, figure: Path | None
) -> None:
    said = "" if options.json else "figure"
    finished = [row for row in found.rows if row.answer]
    if figure and finished:
        from rths_nodes.analysis.figures import iteration as drawn
        from rths_nodes.analysis.figures.style import save

        title = f"{scenario.name}, {settings.mode}: {found.verdict}"
        with terminal.writing(figure, said):
            save(figure, drawn.draw, finished, found.inverse, found.last, title)
    if options.report:
        with terminal.writing(Path(options.report), said and "report"):
            report.write(found.last, Path(options.report), False)


def _changes(given: list[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for words in given:
        number, sign, assignment = words.partition(":")
        if not sign or not number.strip().isdecimal() or int(number) < 2:
            raise ConfigError(f"--change {words}: must be RUN:section.key=value, RUN from 2 on")
        found.setdefault(int(number), []).append(assignment)
    return found


@contextmanager
def _folder(options: argparse.Namespace, scenario: Scenario) -> Iterator[Path]:
    if options.no_record:
        with tempfile.TemporaryDirectory(prefix="rths_") as passing:
            yield Path(passing)
        return
    folder = Path(options.record) if options.record else Path(terminal.RUNS) / scenario.run_id()
    if folder.exists():
        raise ConfigError(f"{folder}: is there already; what repeats gets a folder of its own")
    terminal.check_makable(folder)
    folder.mkdir(parents=True)
    yield folder


def _tell(row: Row) -> None:
    if row.answer:
        true = f", true {row.true:.3g} %" if row.true == row.true else ""
        terminal.tell_now(f"run {row.number}: error {row.error:.3g} % (noise {row.noise:.2g} %){true}")
    else:
        terminal.tell_now(f"run {row.number}: {row.outcome}: {row.reason}")


def _data(scenario: Scenario, settings: Settings, found: Iteration) -> dict[str, object]:
    inverse = found.inverse
    return {
        "scenario": scenario.name,
        "mode": settings.mode,
        "relaxation": settings.relaxation if settings.mode == HISTORY else None,
        "verdict": found.verdict,
        "reason": found.reason,
        "rows": [asdict(row) for row in found.rows],
        "inverse": None
        if inverse is None
        else {
            "late_s": inverse.late.tolist(),
            "delay_s": inverse.delay.tolist(),
            "coefficients": inverse.coefficients.tolist(),
            "learned_to_hz": inverse.learned_to,
            "known_to_hz": inverse.known_to,
        },
    }


def _print(scenario: Scenario, settings: Settings, found: Iteration) -> None:
    console = terminal.console()
    how = f", relaxation {settings.relaxation}" if settings.mode == HISTORY else ""
    console.print(f"{scenario.name}: {settings.mode}{how}; errors in % of the rms of the target", markup=False)
    if (inverse := found.inverse) is not None:
        late = ", ".join(f"{1e3 * value:.3g} ms" for value in inverse.late)
        words = f"learned from up to {inverse.learned_to:.3g} Hz, known up to {inverse.known_to:.3g} Hz"
        console.print(f"rig: late by {late}; {words}", markup=False)
    axes = list(found.rows[0].answer)
    heads = ["error", "noise", *(["residual"] if settings.mode == HISTORY else []), "true", "missed (mm)"]
    drift = [f"specimen of {axis} (%)" for axis in axes]
    peaks = ["command", "velocity", "force"]
    grid = terminal.grid("run", "outcome", numbers=[*heads, *drift, *peaks])
    for row in found.rows:
        cells = [plain(row.error), plain(row.noise)]
        cells += [plain(row.residual)] if settings.mode == HISTORY else []
        cells += [plain(row.true), plain(row.missed, MM)]
        cells += [plain(row.answer.get(axis), PERCENT) for axis in axes]
        cells += [plain(getattr(row, name)) for name in peaks]
        grid.add_row(str(row.number), row.outcome, *cells)
    terminal.show(console, grid)
    colour = "green" if found.exit_code == 0 else "red"
    console.print(f"[bold {colour}]{found.verdict}[/]: ", end="")
    console.print(found.reason, markup=False)
