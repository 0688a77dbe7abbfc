# SPDX-License-Identifier: Apache-2.0
"""``rths report``: write an HTML report of one or more recordings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.overlay import names
from rths_nodes.analysis.units import FORMATS
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.recording import commissioning, procedure
from rths_nodes.recording.reading import read_run

if TYPE_CHECKING:
    from rths_nodes.analysis.figures.drawing import Recordings

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


def run(options: arguments.Options) -> None:
    inputs = [Path(source) for source in options.recording]
    if options.out:
        out = Path(options.out)
    elif _is_commissioning(inputs):
        out = inputs[0].with_suffix(".html")
    else:
        named = inputs[0] if inputs[0].name.strip(".") else inputs[0].resolve()
        out = named.with_name(f"{named.name}{'_compared' if len(inputs) > 1 else ''}.html")
    _check(options, out)
    tests = _write_page(options, inputs, out)
    print(out)
    if tests is not None:
        _write_files(options, out, tests)


def _is_commissioning(inputs: Sequence[Path]) -> bool:
    return len(inputs) == 1 and inputs[0].name.endswith(commissioning.SUFFIX)


def _check(options: arguments.Options, out: Path) -> None:
    problems = Problems()
    with problems.gathered():
        arguments.figures_width(options)
    if len(options.recording) > 1:
        several = [name for name in ("reference", "defaults") if getattr(options, name)]
        problems += [f"--{name}: requires a single recording" for name in several]
    problems.refuse()
    terminal.check_writable(out)


def _write_page(options: arguments.Options, inputs: Sequence[Path], out: Path) -> Recordings | None:
    """Write the page and return the tests on it, or None if the page has no histories."""
    from rths_nodes.analysis.figures.drawing import Recordings
    from rths_nodes.analysis.report import document

    if _is_commissioning(inputs):
        _refuse_histories(options, f"not allowed with {inputs[0]}, because a commissioning has no histories")
        sheet = commissioning.read(inputs[0])
        with terminal.writing(out):
            document.write_sheet(sheet, out)
        return None
    paths = [procedure.last_moving(source) if procedure.exists(source) else source for source in inputs]
    if paths == [None]:
        _refuse_histories(options, f"{inputs[0]}: {UNMOVED}")
        record = procedure.read(inputs[0])
        with terminal.writing(out):
            document.write_record(record, out)
        return None
    if unmoved := [source for source, path in zip(inputs, paths, strict=True) if path is None]:
        raise ConfigError(*(f"{source}: {UNMOVED}" for source in unmoved))
    moving = [path for path in paths if path is not None]
    runs, tests = [], [procedure.of_recording(path) for path in moving]
    for path in moving:
        runs.append(read_run(path))
        terminal.tell(runs[-1].notes)
    if len(runs) == 1:
        with terminal.writing(out):
            document.write_report(runs[0], out, options.reference, tests[0], options.defaults)
        return Recordings.one(Evaluation(runs[0])) if options.csv or options.figures else None
    labels = names([path.resolve().parts for path in inputs])
    with terminal.writing(out):
        return document.write_comparison([*zip(labels, runs, tests, strict=True)], out)


def _refuse_histories(options: arguments.Options, why: str) -> None:
    for name in ("figures", "csv", "reference", "defaults"):
        if getattr(options, name):
            raise ConfigError(f"--{name}: {why}")


def _write_files(options: arguments.Options, out: Path, tests: Recordings) -> None:
    from rths_nodes.analysis.figures import drawing, drawings

    if not (options.csv or options.figures):
        return
    drawn = drawing.for_print(drawings(tests), arguments.figures_width(options))
    if options.csv:
        folder = out.with_name(f"{out.stem}_curves")
        with terminal.writing(folder, "curves"):
            drawing.write_curves(drawn, folder)
    if options.figures:
        folder = out.with_name(f"{out.stem}_figures")
        with terminal.writing(folder, "figures"):
            drawing.write_figures(drawn, folder, options.format or FORMATS[0])
