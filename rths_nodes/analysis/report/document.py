# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML pages without scripts about a test, several tests, a procedure, a commissioning or a study.

The figures are inline SVG. Several correspond to Figs. 7-11 of Chen & Ricles (2010).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from rths_nodes.analysis import figures
from rths_nodes.analysis.figures import studies as study_figures
from rths_nodes.analysis.figures.drawing import Recordings, on_page
from rths_nodes.analysis.histories import Evaluation, ground_acceleration, largest
from rths_nodes.analysis.index_definitions import definitions
from rths_nodes.analysis.overlay import Aligned, Difference, check, differences
from rths_nodes.analysis.report import procedure, tables
from rths_nodes.analysis.report.procedure import Part, grid, listed, moment
from rths_nodes.analysis.study_table import StudyTable, in_cell
from rths_nodes.analysis.units import (
    DASH,
    KN,
    MM,
    MS,
    PERCENT,
    early_or_late,
    exact,
    grouped,
    number,
    quantity,
    rounded,
    sentence,
)
from rths_nodes.core.data import Data
from rths_nodes.core.parameter_docs import table
from rths_nodes.core.parameters import declared
from rths_nodes.core.samples import FLAG_TRIPPED
from rths_nodes.core.text_files import write
from rths_nodes.core.validation import to_data
from rths_nodes.core.version import __version__
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.commissioning import NOT_TRIED, VOID, Commissioning, CommissioningRow
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario.schema import REAL_RIG, axis_names, label, rig_kind, simulation
from rths_nodes.loop.scenario.updating import learning_notes
from rths_nodes.recording.procedure import OfProcedure
from rths_nodes.recording.run import Run

STOPS = {"held": "held", "tripped": "stopped by a limit"}
_TOLD = {
    *("actuator_nodes", "gaps", "host", "lost", "outcome", "pace", "reason", "rig_kind", "run_id", "samples"),
    *("scenario", "started", "version"),
}
"""Keys of a run's information that are shown in other sections of the page."""


def across(simulation: str, made_elsewhere: bool = False) -> str:
    if made_elsewhere:
        return "MADE ELSEWHERE: the histories are imported"
    return f"{label(simulation)}: no steel moved" if simulation else label(simulation)


def facts(evaluation: Evaluation) -> dict[str, str]:
    information = evaluation.run.information
    return {
        "Imported" if evaluation.run.made_elsewhere else "Started": moment(information.get("started", DASH)),
        "Run": information.get("run_id", DASH),
        "Excitation": _excitation(evaluation),
        "Compensator": type(evaluation.scenario.compensator).type_name,
    }


def particulars(evaluation: Evaluation) -> dict[str, str]:
    run, scenario, information = evaluation.run, evaluation.scenario, evaluation.run.information
    port = scenario.port
    transport = not port.cannot_be_built or "transport_samples" in declared(type(port))
    lost = f" ({information['lost']})" if information.get("lost") else ""
    gaps = f"{information['gaps']} gaps{lost}" if information.get("gaps", "0") != "0" else ""
    missing = "; ".join(filter(None, (gaps, run.incomplete))) or ("" if run.notes else "nothing")
    rows = {
        "Host": information.get("host", DASH),
        "Pace": information.get("pace", DASH),
        "Actuator nodes": information.get("actuator_nodes", "one").replace("_", " "),
        "rths_nodes": information.get("version", DASH),
        "Static stage": _static_stage(run),
        "Seed": str(scenario.seed),
        "Servo rate": f"{scenario.servo_rate:g} Hz",
        "Integration step": f"{scenario.step * MS:.4g} ms = {scenario.samples_per_step} samples",
        "Steps": _part_of(len(run.step_time) - 1, scenario.steps),
        "Samples": _part_of(len(run.time) - 1, scenario.samples),
        "Transport samples q": str(port.transport_samples) if transport else "declared by the port",
        "Samples p in transit (hops)": str(scenario.hops.depth or ""),
        "Time axis": f"the rig moves {scenario.time_ratio:g} times slower" if scenario.time_ratio > 1 else "",
        "Missing from the recording": missing if "gaps" in information or run.incomplete else "",
    }
    rows |= {
        key.replace("_", " ").capitalize(): text for key, text in sorted(information.items()) if key not in _TOLD
    }
    return {name: value for name, value in rows.items() if value}


def _static_stage(run: Run) -> str:
    stage = run.integrator.get("static_stage", {})
    moved, force = (stage.get(name) for name in ("displacement", "force")) if isinstance(stage, dict) else ((), ())
    if not (isinstance(moved, list) and isinstance(force, list) and any(moved)) or len(moved) != len(force):
        return ""
    rows = zip(run.dof_names, moved, force, strict=False)
    return ", ".join(f"{name} {x * MM:.4g} mm, {f:.4g} N" for name, x, f in rows)


def _part_of(done: int, planned: int) -> str:
    done = max(0, done)  # -1 if not even the initial state was recorded
    return grouped(done) if done == planned else f"{grouped(done)} of {grouped(planned)}"


def _excitation(evaluation: Evaluation) -> str:
    scenario, run = evaluation.scenario, evaluation.run
    prescribed = scenario.structure is None and scenario.integrator.ground is None
    moving = scenario.integrator.displacement if prescribed else scenario.ground_motion
    if scenario.integrator.history:
        return Path(scenario.integrator.history).name
    if prescribed and moving is None:
        unknown = "unknown" if run.made_elsewhere else "known only to the client"
        return f"{unknown}, so the input energy and the HSEM in percent are not available"
    data = to_data(moving) or {}
    description = [str(data.get("type", DASH))]
    if data.get("type") == "record":
        description = [data["record"] or Path(str(data["file"])).name, f"scale {data['scale']:g}"]
    elif data:
        numbers = [row for row in table(type(moving)) if isinstance(data[row.name], (int, float))]
        # a unit may be "m/s^2 or m", for ground motion or prescribed motion
        units = [row.unit.split(" or ")[-1 if prescribed else 0].strip("-").replace("^2", "²") for row in numbers]
        pairs = zip(numbers, units, strict=True)
        description += [f"{row.name} {data[row.name]:g} {unit}".rstrip() for row, unit in pairs]
    acceleration = partial(ground_acceleration, evaluation)
    peak = largest(evaluation.or_left_out("peak of the excitation", acceleration, np.zeros(0)))
    if peak > 0.0:
        description.append(f"peak {peak:.3g} m/s²{'' if run.outcome == 'finished' else ' up to the stop'}")
    return ", ".join(description)


def summary(evaluation: Evaluation, noun: str) -> list[str]:
    """Return sentences about the result of a test or a rung (``noun``).

    If the test was stopped, the first sentence states when the rig was at rest.
    """
    run = evaluation.run
    axes: Data = run.metrics.get("axes") or {}
    several = len(axes) > 1
    end = float(run.time[-1]) if len(run.time) else 0.0
    planned = run.scenario.samples * run.scenario.dt
    sentences = []
    if run.outcome == "finished":
        doubt = f", but is {run.not_valid}" if run.not_valid else ""
        sentences.append(f"The {noun} finished after {planned:.4g}\u00a0s{doubt}.")
    elif run.outcome in STOPS:
        sentences.append(f"The rig was at rest after {end:.4g}\u00a0s of {planned:.4g}\u00a0s.")
    if run.incomplete:
        counted = f"{evaluation.counted[0]} to {evaluation.counted[-1]}" if len(evaluation.counted) else "none"
        sentences.append(f"The figures use the longest complete sequence of samples: {counted}.")
    errors = {name: error for name in axes if (error := number(axes[name].get("max_error_m"))) is not None}
    if not errors or len(run.time) < 2:
        return [*sentences, "No indices were recorded."]
    worst = max(errors, key=errors.__getitem__)
    who = f"All {len(axes)} actuators followed their targets" if several else "The actuator followed its target"
    share = number(axes[worst].get("max_error_percent"))
    relative = f" ({rounded(share, digits=2)}\u00a0% of the largest target)" if share is not None else ""
    at = f" The error of {axis_names(run.scenario)[worst]} is the largest." if several else ""
    sentences.append(f"{who} within {quantity(errors[worst], MM, 'mm')}{relative}.{at}")
    sentences += _delay(evaluation, worst, axes[worst])
    hsem = number(run.metrics.get("hsem_percent"))
    if hsem is not None:
        did = "fed energy into" if hsem > 0.0 else "took energy out of"
        part = f"{quantity(abs(hsem), 1.0, '%')} of the input energy"
        sentences.append(f"The control error{'s' * several} {did} the structure ({part}).")
    return sentences


def remarks(evaluation: Evaluation) -> list[str]:
    run = evaluation.run
    if not len(evaluation.counted):
        return []
    last = dict(zip(run.compensator_names, run.compensator[evaluation.counted[-1]].tolist(), strict=True))
    return [
        # a first word with a dot is a key and is not capitalised
        f"{remark if '.' in remark.split(maxsplit=1)[0] else sentence(remark)}."
        for remark in (*run.scenario.compensator.remarks(last), *learning_notes(run.integrator, run.scenario))
    ]


def _delay(evaluation: Evaluation, axis: str, index: Mapping[str, object]) -> list[str]:
    delay = number(index.get("delay_s"))
    if delay is None:
        return []
    sentences = [
        f"Over the whole test, this actuator was {early_or_late(delay)}. In this value, the fastest motion has "
        "the largest weight."
    ]
    windowed = evaluation.windowed
    column = np.zeros(0) if windowed is None else windowed.delay[:, evaluation.run.axes.index(axis)]
    if windowed is not None and np.isfinite(column).any():
        low, high = early_or_late(float(np.nanmin(column))), early_or_late(float(np.nanmax(column)))
        windows = f"In windows of {windowed.length:.2g}\u00a0s, the frequency evaluation index"
        sentences.append(f"{windows} gives values between {low} and {high}.")
    return sentences


NO_SAFETY = "The software stop is not a safety function."
KINDS = {"finished": "good", "held": "bad", "tripped": "bad"}


def write_report(
    run: Run, path: Path, reference: bool = False, test: OfProcedure | None = None, defaults: bool = False
) -> None:
    """Write the report on ``run`` to ``path``.

    ``reference`` adds errors relative to the whole structure; the scenario must have a structure. ``test`` holds
    the procedure and the rung of the run. ``defaults`` adds parameters with default values. Raises OSError
    if writing fails, and ConfigError if the scenario cannot be built or the reference cannot be computed.
    """
    write_page(path, render(run, reference, test, defaults))


def write_page(path: Path, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write(Path(path), text.encode())


def render(run: Run, reference: bool = False, test: OfProcedure | None = None, defaults: bool = False) -> str:
    evaluation, information = Evaluation(run), run.information
    record, rung = test or (None, None)
    beside = ""
    if record and run.ending == "finished" and procedure.verdict(record):
        beside = f"rung {procedure.rung_title(rung.name)}" if rung else "a rung"
    pictures = {figure.name: figure for figure in on_page(figures.drawings(Recordings.one(evaluation)))}
    timing = pictures.pop("timing", None)
    first_facts, shown = procedure.first_facts(record) if record else _first_facts(run), verdict(run, record)
    kind = "" if run.made_elsewhere else f"{rig_kind(run.scenario)}: "
    contents: Data = {
        "run": run,
        "scenario": run.scenario,
        "outcome": run.ending,
        "kind": "unknown" if beside else "bad" if run.not_valid else KINDS.get(run.outcome, "unknown"),
        "verdict": shown,
        "first_facts": first_facts,
        "across_words": across(simulation(run.scenario), run.made_elsewhere),
        "signs": record,
        "beside": beside,
        "stopped": STOPS.get(run.outcome, ""),
        "first": first_line(run, test),
        "procedure": procedure.sections(record, rung) if record else {},
        "direct": procedure.DIRECT,
        "set_up": [*tables.set_up(evaluation, record), *(procedure.rig(record) if record else ())],
        "floor": tables.floor(evaluation, record),
        "summary": [*summary(evaluation, "rung" if beside else "test"), *remarks(evaluation)],
        "facts": {key: text for key, text in facts(evaluation).items() if not shown or key not in first_facts},
        "particulars": {
            key: text for key, text in particulars(evaluation).items() if not record or key != "Scenario hash"
        },
        "running": {
            "name": f"{kind}{run.scenario.name}: {(record.ending if record else '') or run.ending}",
            "started": moment(information.get("started", "")),
            "run": information.get("run_id", ""),
        },
        "deviations": procedure.deviations(record) if record else None,
        "defaults": defaults,
        "parameters": tables.parameters(run.scenario, defaults),
        "tables": tables.tables(evaluation, reference),
        "paced": tables.paced(run),
        "flagged": tables.flagged(run),
        "figures": [*pictures.values()],
        "histograms": None if run.in_lockstep else timing,
        "yaml": dump(run.scenario.data()),
    }
    reasons = dict.fromkeys(evaluation.left_out.values())
    left_out = {why: [part for part, reason in evaluation.left_out.items() if reason == why] for why in reasons}
    return template("report.html.j2").render(contents, left_out=left_out)


def write_record(record: ProcedureRecord, path: Path) -> None:
    contents: Data = {
        "outcome": record.ending or "not ended",
        "kind": "bad" if procedure.verdict(record) else "good",
        "verdict": procedure.verdict(record),
        "first": procedure.first_words(record),
        "first_facts": procedure.first_facts(record),
        "across_words": across(record.simulation),
        "signs": record,
        "deviations": procedure.deviations(record),
        "procedure": procedure.sections(record, None),
        "set_up": procedure.rig(record),
        "running": {
            "name": f"{label(record.simulation)}: {record.test_id}: {record.ending}",
            "started": moment(record.started),
            "run": record.test_id,
        },
    }
    write_page(path, template("record.html.j2").render(contents))


def verdict(run: Run, record: ProcedureRecord | None) -> str:
    if record and (of_test := procedure.verdict(record)):
        return of_test
    if run.outcome == "finished":
        return procedure.NOT_VALID if run.not_valid else ""
    return run.outcome.upper() if run.outcome in procedure.STOPPED else "NOT FINISHED"


def _first_facts(run: Run) -> dict[str, str]:
    information, scenario = run.information, run.scenario
    return {
        "Scenario": scenario.name,
        "Started": moment(information.get("started", DASH)),
        "Run": information.get("run_id", DASH),
        "Rig": scenario.rig_file.name if scenario.rig_file else type(scenario.port).type_name,
    }


def first_line(run: Run, test: OfProcedure | None) -> str:
    """Return the reason why a test is unfinished, invalid or incomplete; empty for a complete and valid test."""
    parts, (record, rung) = [], test or (None, None)
    reason = run.information.get("reason", "")
    if run.outcome != "finished":
        outcome = "interrupted" if reason.startswith("interrupted") else run.outcome
        ended = f"Test {outcome}" if outcome in procedure.STOPPED else "Recording not finished"
        stopped = np.flatnonzero(run.flags & FLAG_TRIPPED)
        at = int(stopped[0]) if len(stopped) else max(0, len(run.time) - 1)
        if rung:
            ended += f" in rung {procedure.rung_title(rung.name)}, level {PERCENT * rung.level:g}\u00a0%,"
        when = f"at sample {grouped(at)} of {grouped(run.scenario.samples)} ({at * run.scenario.dt:.4g}\u00a0s)"
        parts.append(f"{ended} {when}: {procedure.cause(reason) or 'no reason was recorded'}")
    if run.not_valid:
        counted = f"{grouped(run.bridged)} of {grouped(len(run.time) - 1)} samples were bridged"
        missed = f"{grouped(round(run.late.missed))} ticks were missed"
        parts.append(f"Test {run.not_valid}: {counted}, and {missed}")
    if record and (sentence_of_test := procedure.first_words(record)):
        shown = reason or run.not_valid
        parts += [] if parts and shown and shown in sentence_of_test else [sentence_of_test]
    return ". ".join((*parts, *run.notes))


@cache
def template(name: str) -> Template:
    places = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(
        loader=places, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["css"] = css_text
    environment.globals |= {"no_safety": NO_SAFETY, "version": __version__}
    return environment.get_template(name)


def css_text(text: str) -> str:
    """Return ``text`` as a CSS string, with characters escaped that could end the string or the style sheet."""
    return '"' + re.sub(r"[^A-Za-z0-9 _.,:-]", lambda match: f"\\{ord(match[0]):x} ", text) + '"'


COMPARED_UNITS = {"m": (MM, "mm"), "N": (KN, "kN"), "m/s²": (1.0, "m/s²")}
UNTOLD = ("cases", "description", "name")
"""Scenario keys that have no effect on the test."""


Compared = tuple[str, Run, OfProcedure | None]
"""Name of a test, its run, and its procedure or None."""


def write_comparison(tests: Sequence[Compared], path: Path) -> Recordings:
    """Write the page that compares ``tests`` with the first test. Raises ConfigError if this is impossible."""
    check({name: run for name, run, _ in tests})
    aligned = [Aligned(name, Evaluation(run)) for name, run, _ in tests]
    drawn = Recordings([test for test in aligned if test.drawable])
    first, *further = aligned
    finished = sum(run.ending == "finished" for _, run, _ in tests)
    result = [(other, differences(first, other)) for other in further]
    contents: dict[str, object] = {
        "title": f"{len(tests)} tests compared",
        "first": [f"{name}: {line}." for name, run, test in tests if (line := first_line(run, test))],
        "badge": f"{finished} of {len(tests)} finished",
        "kind": "good" if finished == len(tests) else "bad",
        "summary": [sentence for row in result if (sentence := _largest(first, *row))],
        "heads": [_heads(tests), _scenarios(tests)],
        "compared": COMPARED.format(name=first.name),
        "differences": [_part(first, *row) for row in result],
        "table": tables.side_by_side({run.name: run.of for run in aligned}),
        "figures": on_page(figures.drawings(drawn)),
    }
    notes: list[str] = []
    for test in aligned:
        notes += [] if test.drawable else [f"{test.name} is not drawn, because it has no evaluated samples"]
        notes += [f"{part} of {test.name} is left out ({why})" for part, why in test.of.left_out.items()]
    write_page(path, template("overlay.html.j2").render(contents, notes=notes))
    return drawn


def _heads(tests: Sequence[Compared]) -> Part:
    rows = []
    for name, run, test in tests:
        information, ratio = run.information, run.scenario.time_ratio
        record, rung = test or (None, None)
        rows.append(
            [
                name,
                f"{record.test_id}, rung {rung.name}" if record and rung else information.get("run_id", DASH),
                moment(information.get("started", DASH)),
                run.ending,
                run.scenario.name,
                ", ".join(filter(None, (information.get("host"), information.get("pace")))) or DASH,
                f"{PERCENT * rung.level:g} %" if rung else DASH,
                f"{ratio:g} times slower" if ratio > 1 else "real time",
                type(run.scenario.compensator).type_name,
            ]
        )
    heads = ("Test", "Id", "Started", "Outcome", "Scenario", "Host, pace", "Level", "Time axis", "Compensator")
    return Part("Overview", grid=grid(heads, rows))


def _scenarios(tests: Sequence[Compared]) -> Part:
    settings = [_flat(run.scenario.data()) for _, run, _ in tests]
    keys = dict.fromkeys(key for values in settings for key in values)
    rows = [[key, *(values.get(key, DASH) for values in settings)] for key in keys]
    heads = ("Parameter", *(name for name, *_ in tests))
    rows = [row for row in rows if len(set(row[1:])) > 1]
    return listed("Differences between the scenarios", heads, rows, "The tests have the same parameters.")


def _flat(data: object, path: str = "") -> dict[str, str]:
    if isinstance(data, Mapping) and (data or not path):
        result: dict[str, str] = {}
        for key, value in data.items():
            result |= {} if not path and key in UNTOLD else _flat(value, f"{path}.{key}" if path else str(key))
        return result
    return {path: DASH if data is None else exact(data)}


COMPARED = (
    "Each difference is the other test minus {name}, at the times of {name} that both tests contain. Displacement "
    "and force are measured; response and absolute acceleration are computed. Percentages are relative to the rms "
    "or largest value of {name}."
)


def _part(first: Aligned, other: Aligned, by_curve: Mapping[str, Difference]) -> Part:
    rows = []
    for name, row in by_curve.items():
        factor, unit = COMPARED_UNITS[row.unit]
        rms_share, largest_share = (
            rounded(PERCENT * share, digits=2) for share in (row.rms_share, row.largest_share)
        )
        sizes = [rounded(row.rms, factor), rms_share, rounded(row.largest, factor), largest_share]
        rows.append([name, *sizes, rounded(row.at), unit])
    heads = ("History", "rms", "rms, %", "largest", "largest, %", "at, s", "unit")
    notes = _cautions_of_times(first, other)
    if not rows:
        notes.append("Nothing can be compared, because the tests have no time in common.")
    return Part(f"{other.name} minus {first.name}", words=tuple(notes), grid=grid(heads, rows))


def _cautions_of_times(first: Aligned, other: Aligned) -> list[str]:
    one, two = first.of.scenario, other.of.scenario
    result = []
    if one.time_ratio != two.time_ratio:
        result.append(
            f"The time ratios are {two.time_ratio:g} and {one.time_ratio:g}, so rate-dependent quantities differ."
        )
    if one.servo_rate != two.servo_rate:
        result.append(
            f"The servo rates are {two.servo_rate:g} Hz and {one.servo_rate:g} Hz, so samples are interpolated "
            "linearly."
        )
    ends = [float(test.time[-1]) for test in (first, other) if test.drawable]
    if len(ends) == 2 and abs(ends[0] - ends[1]) > max(one.step, two.step):
        result.append(f"The tests are compared until {min(ends):.4g}\u00a0s, where the shorter test ends.")
    return result


def _largest(first: Aligned, other: Aligned, by_curve: Mapping[str, Difference]) -> str:
    start = "displacement of "
    moved = {name.removeprefix(start): row for name, row in by_curve.items() if name.startswith(start)}
    if not moved:
        return ""
    axis, worst = max(moved.items(), key=lambda row: row[1].largest)
    share = f" ({rounded(PERCENT * worst.largest_share, digits=2)}\u00a0%)" if worst.largest_share else ""
    by = f"by up to {quantity(worst.largest, MM, 'mm')}{share}" if worst.largest else "by 0 mm"
    where = f" of {axis}" if len(moved) > 1 else ""
    return f"{other.name} differs from {first.name} {by} in the measured displacement{where}."


def write_sheet(result: Commissioning, path: Path) -> None:
    """Write the printable sheet of a commissioning, which is a draft until two persons have signed it."""
    write_page(path, commissioning_sheet(result))


def commissioning_sheet(result: Commissioning) -> str:
    badge = "FAILED" if result.failed else "DRAFT" if result.unsigned else "PASSED"
    not_tried = _names(row for row in result.rows if row.verdict == NOT_TRIED)
    kind = result.rig_kind if result.rig_kind != REAL_RIG else ""
    contents: dict[str, object] = {
        "result": result,
        "title": f"Commissioning of {result.rig}",
        "badge": f"{badge}, {len(not_tried)} not tried" if not_tried and badge == "PASSED" else badge,
        "invalid": badge != "PASSED",
        "kind": {"FAILED": "bad", "DRAFT": "unknown"}.get(badge, "good"),
        "across": kind,
        "facts": _facts_of_rig(result, result.valid_until if badge == "PASSED" and not kind else ""),
        "trials": _trials(result),
        "failed": _names(result.failed),
        "not_tried": not_tried,
        "signed": moment(result.date),
        "void": VOID,
        "valid_until": result.valid_until or DASH,
        "version": result.versions.get("rths_nodes", __version__),
        "dash": DASH,
    }
    return template("commissioning.html.j2").render(contents)


def _names(rows: Iterable[CommissioningRow]) -> list[str]:
    return [f"{row.cause}, {row.what}" for row in rows]


def _facts_of_rig(result: Commissioning, valid_until: str) -> dict[str, str]:
    facts = {
        "Rig": result.rig,
        "Description": result.description,
        "Kind": result.rig_kind,
        "Commissioned": moment(result.date),
        "Valid until": valid_until,
        "Servo-controller": result.controller,
        "Port, receiver build": ", ".join(filter(None, (result.port, result.build))),
        "Rig file, hash": result.rig_hash,
    }
    return {name: value or DASH for name, value in facts.items()}


def _trials(result: Commissioning) -> Iterator[tuple[str, str, list[CommissioningRow]]]:
    last = ""
    for cause in dict.fromkeys(row.cause for row in result.rows):
        proves = result.proves.get(cause, "")
        yield cause, proves if proves != last else "", [row for row in result.rows if row.cause == cause]
        last = proves


WORST = 10
"""Number of worst runs listed for an index, divided among the groups; at least one for each group."""
ROWS = 100
REASONS = 20


def write_study(table: StudyTable, path: Path) -> None:
    outcomes = table.outcomes()
    contents: dict[str, object] = {
        "title": table.title,
        "description": table.description,
        "badge": f"{grouped(outcomes.get('finished', 0))} of {grouped(len(table))} finished",
        "kind": "good" if set(outcomes) <= {"finished"} else "bad",
        "facts": {
            "Scenario": table.scenario,
            "Runs": ", ".join(f"{grouped(count)} {outcome}" for outcome, count in outcomes.items()),
            "Factors": ", ".join((*table.factors, *table.drawn)) or "none",
            "rths_nodes": __version__,
            "Written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        },
        "several": len(table.groups) > 1,
        "titles": [table.title_of(index) for index in table.indices],
        "summary": [table.summary(index) for index in table.indices],
        "effects": [_effect(table, factor) for factor in table.shown_factors if not table.continuous(factor)],
        "figures": on_page(study_figures.drawings(table)),
        "worst": [(table.title_of(index), _worst(table, index)) for index in table.indices],
        "reasons": _reasons(table),
        "definitions": definitions(table.indices),
    }
    write_page(path, template("study.html.j2").render(contents))


def _effect(table: StudyTable, factor: str) -> tuple[str, list[tuple[str, str, list[str]]]]:
    spreads = [table.spreads(index, factor)[:ROWS] for index in table.indices]
    rows = []
    for first, *further in zip(*spreads, strict=True):
        values = [in_cell(value) for spread in (first, *further) for value in (spread.median, spread.worst)]
        rows.append((first.group, first.level, [first.finished, *values]))
    return table.title_of(factor), rows


def _worst(table: StudyTable, index: str) -> list[tuple[str, str, str]]:
    values, columns = table.values(index), table.columns
    count = max(1, WORST // len(table.groups))
    rows = [row for group in table.groups for row in table.worst(index, count, group)]
    shown = [rounded(values[row]) if table.finished[row] else columns["outcome"][row] for row in rows]
    return [(columns["name"][row], text, columns["reason"][row]) for row, text in zip(rows, shown, strict=True)]


def _reasons(table: StudyTable) -> list[tuple[str, str, int, str]]:
    names: dict[tuple[str, str], list[str]] = {}
    for outcome, reason, name in zip(*(table.columns[key] for key in ("outcome", "reason", "name")), strict=True):
        if outcome != "finished":
            names.setdefault((outcome, reason), []).append(name)
    return [(*cause, len(runs), runs[0]) for cause, runs in names.items()][:REASONS]
