# SPDX-License-Identifier: Apache-2.0
"""``rths report``: write an HTML report of one or more recordings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.analysis.paper import FORMATS
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.errors import ConfigError, Problems

if TYPE_CHECKING:
    from rths_nodes.analysis.figures.drawing import Recordings
    from rths_nodes.loop.procedure_record import ProcedureRecord
    from rths_nodes.recording.procedure import OfProcedure
    from rths_nodes.recording.run import Run

UNMOVED = "no rung with motion was recorded, so the test has no histories"


def add_arguments(add: arguments.Arguments) -> None:
    text = (
        "folder of a recording or of a test, or RIG.commissioned.yaml; further folders are compared with the "
        "first folder"
    )
    add("recording", text, nargs="+")
    text = "page to write; default: <recording>.html next to the recording, or <first recording>_compared.html"
    add("--out FILE", text)
    add.reference()
    add.flags(
        defaults="also list parameters with default values",
        csv="also write every curve of the page, with all samples, as CSV in the folder <page>_curves",
    )
    add.figures("<page>_figures")


def run(options: arguments.Options) -> int:
    from rths_nodes.recording import commissioning, procedure
    from rths_nodes.recording.reading import read_run

    inputs = [Path(source) for source in options.recording]
    if len(inputs) == 1 and inputs[0].name.endswith(commissioning.SUFFIX):
        return _of_commissioning(options, inputs[0])
    out = Path(options.out) if options.out else _beside(inputs[0], "_compared" if len(inputs) > 1 else "")
    _check(options, out)
    shown = [procedure.last_moving(source) if procedure.exists(source) else source for source in inputs]
    if len(inputs) == 1 and shown[0] is None:
        return _of_record(options, inputs[0], out)
    if unmoved := [source for source, path in zip(inputs, shown, strict=True) if path is None]:
        raise ConfigError(*(f"{source}: {UNMOVED}" for source in unmoved))
    paths = [path for path in shown if path is not None]
    loaded = []
    for path in paths:
        loaded.append(read_run(path))
        terminal.tell(loaded[-1].notes)
    tests = [procedure.of_recording(path) for path in paths]
    if len(loaded) == 1:
        with terminal.writing(out):
            write(loaded[0], out, options.reference, tests[0], options.defaults)
        print(out)
        _write_files(options, out, lambda: _tests(loaded[0]))
        return 0
    from rths_nodes.analysis.overlay import names
    from rths_nodes.analysis.report import overlay

    named = names([path.resolve().parts for path in inputs])
    compared = [overlay.Compared(*test) for test in zip(named, loaded, tests, strict=True)]
    with terminal.writing(out):
        shown_tests = overlay.write(compared, out)
    print(out)
    _write_files(options, out, lambda: shown_tests)
    return 0


def _beside(recording: Path, ending: str) -> Path:
    named = recording if recording.name.strip(".") else recording.resolve()
    return named.with_name(f"{named.name}{ending}.html")


def _of_record(options: arguments.Options, folder: Path, out: Path) -> int:
    from rths_nodes.recording import procedure

    for name in ("figures", "csv", "reference", "defaults"):
        if getattr(options, name):
            raise ConfigError(f"--{name}: {folder}: {UNMOVED}")
    with terminal.writing(out):
        write_record(procedure.read(folder), out)
    print(out)
    return 0


def _of_commissioning(options: arguments.Options, file: Path) -> int:
    from rths_nodes.analysis.report.commissioning import write_sheet
    from rths_nodes.recording import commissioning

    for name in ("figures", "csv", "reference", "defaults"):
        if getattr(options, name):
            raise ConfigError(f"--{name}: not allowed with {file}, because a commissioning has no histories")
    out = Path(options.out) if options.out else file.with_suffix(".html")
    _check(options, out)
    with terminal.writing(out):
        write_sheet(commissioning.read(file), out)
    print(out)
    return 0


def _check(options: arguments.Options, out: Path) -> None:
    problems = Problems()
    with problems.gathered():
        arguments.figures_width(options)
    if len(options.recording) > 1:
        several = [name for name in ("reference", "defaults") if getattr(options, name)]
        problems += [f"--{name}: requires a single recording" for name in several]
    problems.refuse()
    terminal.check_writable(out)


def _tests(run: Run) -> Recordings:
    from rths_nodes.analysis.figures.drawing import Recordings
    from rths_nodes.analysis.histories import Evaluation

    return Recordings.one(Evaluation(run))


def _write_files(options: arguments.Options, out: Path, tests: Callable[[], Recordings]) -> None:
    if not (options.csv or options.figures):
        return
    from rths_nodes.analysis.figures import drawing, drawings

    drawn = drawing.for_print(drawings(tests()), arguments.figures_width(options))
    if options.csv:
        folder = out.with_name(f"{out.stem}_curves")
        with terminal.writing(folder, "curves"):
            drawing.write_curves(drawn, folder)
    if options.figures:
        folder = out.with_name(f"{out.stem}_figures")
        with terminal.writing(folder, "figures"):
            drawing.write_figures(drawn, folder, options.format or FORMATS[0])


def write_record(record: ProcedureRecord, path: Path) -> None:
    from rths_nodes.analysis.report import document

    document.write_record(record, path)


def write(run: Run, path: Path, reference: bool, test: OfProcedure | None = None, defaults: bool = False) -> None:
    from rths_nodes.analysis.report import document

    document.write_report(run, path, reference, test, defaults)
