# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML page about a test, without scripts.

The figures are Figs. 7-11 of Chen & Ricles (2010), as inline SVG.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from rths_nodes.analysis import figures
from rths_nodes.analysis.figures.drawing import Recordings, on_page
from rths_nodes.analysis.histories import Evaluation, ground_acceleration, largest
from rths_nodes.analysis.report import procedure, set_up, tables
from rths_nodes.analysis.report.procedure import moment
from rths_nodes.analysis.report.tables import Row, Table
from rths_nodes.analysis.units import (
    DASH,
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
from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.parameter_docs import table
from rths_nodes.core.parameters import Spec, declared, is_params, type_of
from rths_nodes.core.samples import FLAG_TRIPPED
from rths_nodes.core.validation import to_data
from rths_nodes.core.version import __version__
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario.schema import Scenario, axis_names, label, rig_kind, simulation
from rths_nodes.loop.scenario.updating import learning_notes
from rths_nodes.recording.procedure import OfProcedure
from rths_nodes.recording.run import Run

STOPS = {"held": "held", "tripped": "stopped by a limit"}
_TOLD = {
    *("actuator_nodes", "gaps", "host", "lost", "outcome", "pace", "reason", "rig_kind", "run_id", "samples"),
    *("scenario", "started", "version"),
}
"""Keys of a run's information that the page shows elsewhere."""


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
    missing = "; ".join(filter(None, (gaps, run.incomplete))) or "nothing"
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
        "Samples p under way in hops": str(scenario.hops.depth or ""),
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
    """Return sentences on the result of a ``noun`` (test or rung).

    For a stopped test, the first sentence states when the rig was at rest.
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
        sentences.append(f"The figures use the longest complete stretch of samples: {counted}.")
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
        f"This actuator was {early_or_late(delay)} over the whole test, where the fastest motion has the largest "
        "weight."
    ]
    windowed = evaluation.windowed
    column = np.zeros(0) if windowed is None else windowed.delay[:, evaluation.run.axes.index(axis)]
    if windowed is not None and np.isfinite(column).any():
        low, high = early_or_late(float(np.nanmin(column))), early_or_late(float(np.nanmax(column)))
        windows = f"In windows of {windowed.length:.2g}\u00a0s, the frequency evaluation index"
        sentences.append(f"{windows} gives values between {low} and {high}.")
    return sentences


LEFT_OUT = ("version", "name", "description", "cases", "scatter")
"""Keys of a scenario that are in the header of the page, or that concern other runs."""
ELSEWHERE = tuple(f"rig_axis.{key}." for key in ("displacement", "force", "command", "limits"))
"""Prefixes of parameters that other tables contain."""
SECTIONS = ("component", "section")


class Section(NamedTuple):
    title: str
    type: str
    meaning: str
    table: Table


def sections(scenario: Scenario, defaults: bool = True) -> list[Section]:
    test: list[Row] = []
    result: list[Section] = []
    for name, spec in declared(type(scenario)).items():
        built, title = getattr(scenario, name), name.replace("_", " ").capitalize()
        if name == "axes":
            title = "Axes" if len(built) > 1 else f"Axis {next(iter(built))}"
            rows_by_axis = {axis: list(_inside(built[axis], defaults)) for axis in built}
            result.append(Section(title, "", "", _side_by_side(rows_by_axis)))
        elif spec.kind in SECTIONS and built is not None:
            kind = _type("", built, spec.family) if spec.family else Row("", [""], "")
            rows = list(_inside(built, defaults))
            if rows or kind.values[0]:
                result.append(Section(title, kind.values[0], kind.meaning, _side_by_side({name: rows})))
        elif spec.kind not in SECTIONS and name not in LEFT_OUT and (defaults or _chosen(built, spec)):
            test.append(_plain(name, built, spec))
    return [Section("Test", "", "", _side_by_side({"": test})), *result]


def _chosen(value: object, spec: Spec) -> bool:
    return bool(to_data(value) != to_data(spec.left_out))


def _side_by_side(axes: Mapping[str, list[Row]]) -> Table:
    if len(axes) == 1:
        return Table("Parameter", ["Value"], *axes.values())
    by_axis = [{row.title: row for row in rows} for rows in axes.values()]
    names = list(dict.fromkeys(name for rows in by_axis for name in rows))
    parts = [name.partition(".")[0] for name in names]
    result = []
    for name in sorted(names, key=lambda name: parts.index(name.partition(".")[0])):  # keep sections together
        present = [rows[name] for rows in by_axis if name in rows]
        meanings = dict.fromkeys(row.meaning for row in present)
        values = [rows[name].values[0] if name in rows else DASH for rows in by_axis]
        unit = next((row.unit for row in present if row.unit), "")
        result.append(Row(name, values, unit, "; ".join(filter(None, meanings))))
    return Table("Parameter", list(axes), result)


def _type(name: str, component: object, family: str) -> Row:
    description = ""
    with suppress(ConfigError):
        description = registry.description(family, type_of(component)).rstrip(".")
    return Row(name, [type_of(component)], "", description)


def _inside(built: object, defaults: bool, path: str = "") -> Iterator[Row]:
    for key, spec in declared(type(built)).items():
        value, name = getattr(built, key), join(path, key)
        named = isinstance(value, Mapping) and spec.kind in ("sections", "components")
        parts = {join(name, inner): entry for inner, entry in value.items()} if named else {name: value}
        for heading, part in parts.items():
            if is_params(part):
                if type_of(part):
                    yield _type(heading, part, spec.family)
                yield from _inside(part, defaults, heading)
            elif defaults or (_chosen(part, spec) and not heading.startswith(ELSEWHERE)):
                yield _plain(heading, part, spec)


def _plain(name: str, value: object, spec: Spec) -> Row:
    unit = "" if spec.unit == "1" else spec.unit.replace("^2", "²")
    return Row(name, [exact(to_data(value))], unit if value is not None else "", spec.doc)


NO_SAFETY = "The software stop is not a safety function."
KINDS = {"finished": "good", "held": "bad", "tripped": "bad"}


def write_report(
    run: Run, path: Path, reference: bool = False, test: OfProcedure | None = None, defaults: bool = False
) -> None:
    """Write the page about ``run``.

    ``reference`` adds errors relative to the whole structure, which the scenario must have. ``test`` is the
    procedure. ``defaults`` also lists parameters with default values. Raises OSError if writing fails, and
    ConfigError if the scenario cannot be built or the reference cannot be computed.
    """
    write_page(path, render(run, reference, test, defaults))


def write_page(path: Path, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def render(run: Run, reference: bool = False, test: OfProcedure | None = None, defaults: bool = False) -> str:
    evaluation, information = Evaluation(run), run.information
    record, rung = (test.record, procedure.rung_of(*test)) if test else (None, None)
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
        "set_up": [*set_up.parts(evaluation, record), *(procedure.rig(record) if record else ())],
        "floor": set_up.floor(evaluation, record),
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
        "parameters": sections(run.scenario, defaults),
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
    """Return the reasons why a test is unfinished, invalid or incomplete; an empty string if there are none."""
    parts = []
    reason = run.information.get("reason", "")
    if run.outcome != "finished":
        outcome = "interrupted" if reason.startswith("interrupted") else run.outcome
        ended = f"Test {outcome}" if outcome in procedure.STOPPED else "Recording not finished"
        stopped = np.flatnonzero(run.flags & FLAG_TRIPPED)
        at = int(stopped[0]) if len(stopped) else max(0, len(run.time) - 1)
        if rung := procedure.rung_of(*test) if test else None:
            ended += f" in rung {procedure.rung_title(rung.name)}, level {PERCENT * rung.level:g}\u00a0%,"
        when = f"at sample {grouped(at)} of {grouped(run.scenario.samples)} ({at * run.scenario.dt:.4g}\u00a0s)"
        parts.append(f"{ended} {when}: {procedure.cause(reason) or 'no reason was recorded'}")
    if run.not_valid:
        counted = f"{grouped(run.bridged)} of {grouped(len(run.time) - 1)} samples were bridged"
        missed = f"{grouped(round(run.late.missed))} ticks were missed"
        parts.append(f"Test {run.not_valid}: {counted}, and {missed}")
    if test and (sentence_of_test := procedure.first_words(test.record)):
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
    """Return ``text`` as a CSS string; characters that could end the string or the style sheet are escaped."""
    return '"' + re.sub(r"[^A-Za-z0-9 _.,:-]", lambda match: f"\\{ord(match[0]):x} ", text) + '"'
