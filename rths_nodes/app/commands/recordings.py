# SPDX-License-Identifier: Apache-2.0
"""Commands for recordings and for folders of tests.

``rths report``: write an HTML report of one or more recordings.

``rths recover``: complete an interrupted recording, or the record of an interrupted test.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.overlay import names, peaks_of
from rths_nodes.analysis.units import FORMATS
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.procedure.procedure_runner import update_specimen
from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import ProcedureRecord, RungRecord
from rths_nodes.recording import bag, commissioning, procedure
from rths_nodes.recording.plain import now
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError

if TYPE_CHECKING:
    from rths_nodes.analysis.figures.drawing import Recordings

UNMOVED = "no rung with motion was recorded, so the test has no histories"


def report_arguments(add: arguments.Arguments) -> None:
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


def report_command(options: arguments.Options) -> None:
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
    from rths_nodes.analysis.figures.drawing import Recordings
    from rths_nodes.analysis.report import document

    if _is_commissioning(inputs):
        _refuse_histories(options, f"not allowed with {inputs[0]}, because commissioning yields no histories")
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


OUTCOME = "interrupted"
KILLED = "the program that conducted the test was killed"


def recover_arguments(add: arguments.Arguments) -> None:
    add.recording("folder of a recording, or of a test (runs/<test id>)")
    text = "write the complete recording to DIR and leave the original unchanged, e.g. because a disk is full"
    add("--out DIR", text)


def recover_command(options: arguments.Options) -> int:
    if procedure.exists(options.recording):
        if options.out:
            raise ConfigError("--out: applies to a recording only; the record of a test is completed in place")
        for note in recover(options.recording) or ["the record is complete; there is nothing to recover"]:
            print(f"{options.recording}: {note}")
        return ExitCode.FINISHED
    recovered = bag.recover(options.recording, options.out)
    if recovered.was_complete:
        print(f"{options.recording}: is complete; there is nothing to recover ({recovered.messages} messages)")
    else:
        where = f" in {options.out}" if options.out else ""
        print(
            f"{options.recording}: recovered {recovered.messages} messages{where}, "
            f"{recovered.lost_bytes} bytes lost"
        )
    terminal.tell(f"{options.recording}: {note}" for note in recovered.notes)
    try:
        terminal.tell(read_run(recovered.path).notes)
    except ConfigError as error:
        terminal.tell(f"cannot be read as a test: {problem}" for problem in error.problems)
        return ExitCode.FAILED
    return ExitCode.FINISHED


def recover(folder: Path | str) -> list[str]:
    if procedure.under_way(folder):
        raise ConfigError(f"{folder}: the test is still running")
    record = procedure.read(folder)
    if record.outcome:
        return []
    notes = []
    for act in record.acts:
        if act.under_way:
            act.under_way, act.result = False, f"{OUTCOME}: {KILLED}, and it is unknown how far the act progressed"
            notes.append(f"act {act.act}: {act.result}")
    for rung in record.rungs:
        if not rung.outcome:
            notes += _rung(record, rung, Path(folder))
    record.outcome, record.reason, record.ended = OUTCOME, KILLED, record.ended or now()
    procedure.write(record, folder)
    return [*notes, f"outcome: {OUTCOME}: {KILLED}"]


def _rung(record: ProcedureRecord, rung: RungRecord, folder: Path) -> list[str]:
    rung.outcome, rung.reason = OUTCOME, KILLED
    path = folder / rung.recording
    notes = [f"rung {rung.name}: {OUTCOME}"]
    try:
        if not rung.recording or not path.is_dir():
            raise ConfigError("nothing was recorded")
        recovered = bag.recover(path)
        run = read_run(path)
        rung.samples, rung.peaks = len(run.time) - 1, peaks_of(run)
        notes += [f"recording {rung.recording}: {recovered.messages} messages, {recovered.lost_bytes} bytes lost"]
    except (ConfigError, RecordingError) as error:
        rung.remarks.append(f"the recording cannot be read: {error}")
        notes.append(f"rung {rung.name}: {rung.remarks[-1]}")
    if update_specimen(record, rung):
        notes.append(f"history of the specimen {record.specimen.id}: completed with rung {rung.name}")
    return notes
