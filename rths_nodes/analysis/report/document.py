# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML page about a test, without scripts.

The figures are Figs. 7-11 of Chen & Ricles (2010), as inline SVG.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from rths_nodes.analysis import energy, figures
from rths_nodes.analysis.figures.drawing import Recordings, on_page
from rths_nodes.analysis.histories import Evaluation, largest
from rths_nodes.analysis.report import procedure, set_up, tables
from rths_nodes.analysis.report.procedure import Part, grid, moment
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
)
from rths_nodes.core import registry
from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.parameter_table import table
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


_TOLD = (
    *("actuator_nodes", "gaps", "host", "lost", "outcome", "pace", "reason", "rig_kind", "run_id", "samples"),
    *("scenario", "started", "version"),
)
"""Keys of a run's information that the page shows elsewhere."""


SHARED_HASH = "Scenario hash"
"""Name of the hash that the nodes compare."""


def across(simulation: str, made_elsewhere: bool = False) -> str:
    if made_elsewhere:
        return "MADE ELSEWHERE: the histories are imported"
    return f"{label(simulation)}: no steel moved" if simulation else label(simulation)


def facts(evaluation: Evaluation) -> dict[str, str]:
    information = evaluation.run.information
    return {
        "Imported" if evaluation.run.made_elsewhere else "Started": moment(information.get("started", "–")),
        "Run": information.get("run_id", "–"),
        "Excitation": _excitation(evaluation),
        "Compensator": type(evaluation.scenario.compensator).type_name,
    }


def particulars(evaluation: Evaluation) -> dict[str, str]:
    run, scenario, information = evaluation.run, evaluation.scenario, evaluation.run.information
    port = scenario.port
    transport = not port.cannot_be_built or "transport_samples" in declared(type(port))
    rows = {
        "Host": information.get("host", "–"),
        "Pace": information.get("pace", "–"),
        "Actuator nodes": information.get("actuator_nodes", "one").replace("_", " "),
        "rths_nodes": information.get("version", "–"),
        **_static_stage(run),
        "Seed": str(scenario.seed),
        "Servo rate": f"{scenario.servo_rate:g} Hz",
        "Integration step": f"{scenario.step * MS:.4g} ms = {scenario.samples_per_step} samples",
        "Steps": _part_of(len(run.step_time) - 1, scenario.steps),
        "Samples": _part_of(len(run.time) - 1, scenario.samples),
        "Transport samples q": str(port.transport_samples) if transport else "declared by the port",
    }
    if scenario.hops.depth:
        rows["Samples p under way in hops"] = str(scenario.hops.depth)
    if scenario.time_ratio > 1:
        rows["Time axis"] = f"the rig moves {scenario.time_ratio:g} times slower"
    if "gaps" in information or run.incomplete:
        lost = f" ({information['lost']})" if information.get("lost") else ""
        gaps = f"{information['gaps']} gaps{lost}" if information.get("gaps", "0") != "0" else ""
        rows["Missing from the recording"] = "; ".join(filter(None, (gaps, run.incomplete))) or "nothing"
    further = {
        key.replace("_", " ").capitalize(): information[key] for key in sorted(information) if key not in _TOLD
    }
    return rows | {name: value for name, value in further.items() if value}


def _static_stage(run: Run) -> dict[str, str]:
    stage = run.integrator.get("static_stage", {})
    moved, force = (stage.get(name) for name in ("displacement", "force")) if isinstance(stage, dict) else ((), ())
    if not (isinstance(moved, list) and isinstance(force, list) and any(moved)) or len(moved) != len(force):
        return {}
    rows = zip(run.dof_names, moved, force, strict=False)
    return {"Static stage": ", ".join(f"{name} {x * MM:.4g} mm, {f:.4g} N" for name, x, f in rows)}


def _part_of(done: int, planned: int) -> str:
    done = max(0, done)  # -1 if not even the initial state was recorded
    return grouped(done) if done == planned else f"{grouped(done)} of {grouped(planned)}"


def _excitation(evaluation: Evaluation) -> str:
    scenario = evaluation.scenario
    prescribed = scenario.structure is None and scenario.integrator.ground is None
    moving = scenario.integrator.displacement if prescribed else scenario.ground_motion
    if scenario.integrator.history:
        return Path(scenario.integrator.history).name
    if prescribed and moving is None and evaluation.run.made_elsewhere:
        return "unknown, so the input energy and the HSEM in percent are not available"
    if prescribed and moving is None:
        return "known only to the client, so the input energy and the HSEM in percent are not available"
    data = to_data(moving) or {}
    if data.get("type") == "record":
        description = [data["record"] or Path(str(data["file"])).name, f"scale {data['scale']:g}"]
    else:
        description = [str(data.get("type", "–"))]
        for row in table(type(moving)) if data else ():
            if isinstance(
                data[row.name], (int, float)
            ):  # e.g. "m/s^2 or m", for ground motion or prescribed motion
                unit = row.unit.split(" or ")[-1 if prescribed else 0].strip("-").replace("^2", "²")
                description.append(f"{row.name} {data[row.name]:g} {unit}".rstrip())
    ground = evaluation.or_left_out(
        "peak of the excitation", lambda: energy.ground_acceleration(evaluation), np.zeros(0)
    )
    peak = largest(ground)
    if peak > 0.0:
        until = "" if evaluation.run.outcome == "finished" else " up to the stop"
        description.append(f"peak {peak:.3g} m/s²{until}")
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
    if evaluation.run.incomplete:
        counted = f"{evaluation.counted[0]} to {evaluation.counted[-1]}" if len(evaluation.counted) else "none"
        sentences.append(f"The figures use the longest complete stretch of samples: {counted}.")
    errors = {name: error for name in axes if (error := number(axes[name].get("max_error_m"))) is not None}
    if not errors or len(run.time) < 2:
        return [*sentences, "No indices were recorded."]
    worst = max(errors, key=errors.__getitem__)
    index = axes[worst]
    who = f"All {len(axes)} actuators followed their targets" if several else "The actuator followed its target"
    share = number(index.get("max_error_percent"))
    relative = f" ({rounded(share, digits=2)}\u00a0% of the largest target)" if share is not None else ""
    at = f" The error of {axis_names(run.scenario)[worst]} is the largest." if several else ""
    sentences.append(f"{who} within {quantity(errors[worst], MM, 'mm')}{relative}.{at}")
    sentences += _delay(evaluation, worst, index)
    hsem = number(run.metrics.get("hsem_percent"))
    if hsem is not None:
        whose = "The control errors" if several else "The control error"
        did = "fed energy into" if hsem > 0.0 else "took energy out of"
        part = f"{quantity(abs(hsem), 1.0, '%')} of the input energy"
        sentences.append(f"{whose} {did} the structure ({part}).")
    return sentences


def remarks(evaluation: Evaluation) -> list[str]:
    run = evaluation.run
    if not len(evaluation.counted):
        return []
    last = dict(zip(run.compensator_names, run.compensator[evaluation.counted[-1]].tolist(), strict=True))
    return [
        # a first word with a dot is a key and is not capitalised
        f"{remark}." if "." in remark.split(maxsplit=1)[0] else f"{remark[0].upper()}{remark[1:]}."
        for remark in (*run.scenario.compensator.remarks(last), *learning_notes(run.integrator, run.scenario))
    ]


def _delay(evaluation: Evaluation, axis: str, index: Mapping[str, object]) -> list[str]:
    delay = number(index.get("delay_s"))
    if delay is None:
        return []
    sentence = (
        f"This actuator was {early_or_late(delay)} over the whole test, where the fastest motion has "
        "the largest weight"
    )
    windowed = evaluation.windowed
    column = None if windowed is None else windowed.delay[:, evaluation.run.axes.index(axis)]
    if windowed is None or column is None or not np.isfinite(column).any():
        return [f"{sentence}."]
    low, high = early_or_late(float(np.nanmin(column))), early_or_late(float(np.nanmax(column)))
    windows = f"In windows of {windowed.length:.2g}\u00a0s, the frequency evaluation index"
    return [f"{sentence}. {windows} gives values between {low} and {high}."]


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
            axes = {axis: list(_inside(built[axis], defaults)) for axis in built}
            title = "Axes" if len(axes) > 1 else f"Axis {next(iter(axes))}"
            result.append(Section(title, "", "", _side_by_side(axes)))
        elif spec.kind in SECTIONS and built is not None:
            kind = _type("", built, spec.family) if spec.family else Row("", [""], "")
            rows = [*_inside(built, defaults)]
            if rows or kind.values[0]:
                result.append(Section(title, kind.values[0], kind.meaning, _one_column(rows)))
        elif spec.kind not in SECTIONS and name not in LEFT_OUT and (defaults or _chosen(built, spec)):
            test.append(_plain(name, built, spec))
    return [Section("Test", "", "", _one_column(test)), *result]


def _chosen(value: object, spec: Spec) -> bool:
    return bool(to_data(value) != to_data(spec.left_out))


def _one_column(rows: list[Row]) -> Table:
    return Table("Parameter", ["Value"], rows)


def _side_by_side(axes: Mapping[str, list[Row]]) -> Table:
    names = list(dict.fromkeys(row.title for rows in axes.values() for row in rows))
    parts = [name.partition(".")[0] for name in names]
    names.sort(key=lambda name: parts.index(name.partition(".")[0]))  # keep the keys of a section together
    by_axis = [{row.title: row for row in rows} for rows in axes.values()]
    result = []
    for name in names:
        present = [rows[name] for rows in by_axis if name in rows]
        meanings = dict.fromkeys(row.meaning.rstrip(".") for row in present)
        values = [rows[name].values[0] if name in rows else exact(None) for rows in by_axis]
        unit = next((row.unit for row in present if row.unit), "")
        result.append(Row(name, values, unit, "; ".join(filter(None, meanings))))
    return Table("Parameter", list(axes) if len(axes) > 1 else ["Value"], result)


def _type(name: str, component: object, family: str) -> Row:
    description = ""
    with suppress(ConfigError):
        description = registry.description(family, type_of(component))
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
    evaluation = Evaluation(run)
    beside = _beside(run, test)
    pictures = {figure.name: figure for figure in on_page(figures.drawings(Recordings.one(evaluation)))}
    timing = pictures.pop("timing", None)
    verdict_of, first_facts = verdict(run, test), procedure.first_facts(test.record) if test else _first_facts(run)
    contents: dict[str, object] = {
        "scenario": run.scenario,
        "axes": run.axes,
        "outcome": run.ending,
        "reason": run.information.get("reason", ""),
        "kind": "unknown" if beside else "bad" if run.not_valid else KINDS.get(run.outcome, "unknown"),
        "verdict": verdict_of,
        "first_facts": first_facts,
        "across_words": across(simulation(run.scenario), run.made_elsewhere),
        "signs": test.record if test else None,
        "beside": beside,
        "stopped": STOPS.get(run.outcome, ""),
        "first": first_line(run, test),
        "procedure": _procedure(test),
        "direct": procedure.DIRECT,
        "set_up": _set_up(evaluation, test),
        "floor": _floor(evaluation, test.record if test else None),
        "summary": [*summary(evaluation, "rung" if beside else "test"), *remarks(evaluation)],
        "facts": {
            key: value for key, value in facts(evaluation).items() if not verdict_of or key not in first_facts
        },
        "particulars": {
            name: value for name, value in particulars(evaluation).items() if test is None or name != SHARED_HASH
        },
        "running": _running(run, test),
        "deviations": procedure.deviations(test.record) if test else None,
        "defaults": defaults,
        "parameters": sections(run.scenario, defaults),
        "tables": {
            "indices": tables.indices(evaluation),
            "published": evaluation.or_left_out("published indices", lambda: tables.published(evaluation), None),
            "response": tables.response(evaluation) if reference else None,
            "loads": tables.loads(evaluation),
            "limits": tables.limits(evaluation),
            "timing": tables.timing(run),
        },
        "paced": tables.paced(run),
        "flagged": tables.flagged(run),
        "figures": [*pictures.values()],
        "histograms": None if run.in_lockstep else timing,
        "yaml": dump(run.scenario.data()),
    }
    return template("report.html.j2").render(contents, left_out=_by_reason(evaluation.left_out))


def write_record(record: ProcedureRecord, path: Path) -> None:
    contents: dict[str, object] = {
        "outcome": record.ending or "not ended",
        "kind": "bad" if procedure.verdict(record) else "good",
        "verdict": procedure.verdict(record),
        "first": procedure.first_words(record),
        "first_facts": procedure.first_facts(record),
        "across_words": across(record.simulation),
        "signs": record,
        "deviations": procedure.deviations(record),
        "procedure": _procedure(OfProcedure(record)),
        "set_up": procedure.rig(record),
        "running": {
            "name": f"{label(record.simulation)}: {record.test_id}: {record.ending}",
            "started": moment(record.started),
            "run": record.test_id,
        },
    }
    write_page(path, template("record.html.j2").render(contents))


def verdict(run: Run, test: OfProcedure | None) -> str:
    outcome = procedure.NOT_VALID if run.not_valid else ""
    if run.outcome != "finished":
        outcome = run.outcome.upper() if run.outcome in procedure.STOPPED else "NOT FINISHED"
    return (procedure.verdict(test.record) if test else "") or outcome


def _beside(run: Run, test: OfProcedure | None) -> str:
    if test is None or run.ending != "finished" or not procedure.verdict(test.record):
        return ""
    rung = procedure.rung_of(test.record, test.folder)
    return f"rung {procedure.rung_title(rung.name)}" if rung else "a rung"


def _first_facts(run: Run) -> dict[str, str]:
    information, scenario = run.information, run.scenario
    rig = scenario.rig_file.name if scenario.rig_file else type(scenario.port).type_name
    return {
        "Scenario": scenario.name,
        "Started": moment(information.get("started", "–")),
        "Run": information.get("run_id", "–"),
        "Rig": rig,
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
        rung = procedure.rung_of(test.record, test.folder) if test is not None else None
        during = (
            f" in rung {procedure.rung_title(rung.name)}, level {PERCENT * rung.level:g}\u00a0%," if rung else ""
        )
        when = f"at sample {grouped(at)} of {grouped(run.scenario.samples)} ({at * run.scenario.dt:.4g}\u00a0s)"
        parts.append(f"{ended}{during} {when}: {procedure.cause(reason) or 'no reason was recorded'}")
    if run.not_valid:
        counted = f"{grouped(run.bridged)} of {grouped(len(run.time) - 1)} samples were bridged"
        missed = f"{grouped(round(run.late.missed))} ticks were missed"
        parts.append(f"Test {run.not_valid}: {counted}, and {missed}")
    if test is not None:
        sentence = procedure.first_words(test.record)
        reason_shown = reason or run.not_valid
        parts += [sentence] if sentence and not (parts and reason_shown and reason_shown in sentence) else []
    return ". ".join((*parts, *run.notes))


def _procedure(test: OfProcedure | None) -> dict[str, list[Part]]:
    if test is None:
        return {}
    record = test.record
    return {
        "head": procedure.head(record, procedure.rung_of(record, test.folder)),
        "Checks": procedure.checks(record),
        "Ladder": [*procedure.ladder(record), *procedure.mandates(record)],
        "Acts": procedure.acts(record),
    }


def _set_up(evaluation: Evaluation, test: OfProcedure | None) -> list[Part]:
    checks = test.record.checks if test else {}
    measured = {
        axis: axis_checks.stiffness for axis, axis_checks in checks.items() if axis_checks.stiffness is not None
    }
    return [*set_up.parts(evaluation, measured), *(procedure.rig(test.record) if test else ())]


def _floor(evaluation: Evaluation, record: ProcedureRecord | None) -> Part:
    title = "Error and floor of the sensor"
    if len(evaluation.counted) < 2:
        return Part(title)
    run, floors = evaluation.run, set_up.floors(evaluation.scenario)
    before = record.offsets_before if record else None
    rows = []
    for index, axis in enumerate(run.axes):
        target = run.target[evaluation.counted, index]
        error = target - run.displacement[evaluation.counted, index]
        size, spread = float(np.abs(target).max()), float(np.sqrt(np.mean(target**2)))
        largest, rms = float(np.abs(error).max()), float(np.sqrt(np.mean(error**2)))
        seen = before.axes[axis].displacement_scatter if before and axis in before.axes else math.nan
        most = max([value for value in (floors[axis], seen) if value > 0.0], default=math.nan)
        shares = [rounded(PERCENT * a / b if b else math.nan) for a, b in ((largest, size), (rms, spread))]
        numbers = [rounded(largest, MM), shares[0], rounded(rms, MM), shares[1]]
        numbers += [rounded(floors[axis] or math.nan, MM), rounded(seen, MM), rounded(rms / most)]
        rows.append([axis_names(evaluation.scenario)[axis], *numbers])
    if all(row[-1] == DASH for row in rows):
        return Part(
            title, words=("No displacement sensor has a stated noise or resolution, so no floor is known.",)
        )
    heads = (
        "Axis",
        "largest error, mm",
        "largest error, % of target",
        "rms error, mm",
        "rms error, % of rms target",
    )
    beside = ("floor of the sensor, mm", "scatter at rest, mm", "rms error divided by floor")
    sentence = (
        "The floor of a sensor is the rms of its noise and resolution, √(noise² + resolution²/12), from the rig "
        "file or the simulated sensor. The scatter at rest is the rms while the offsets were taken.",
    )
    return Part(title, words=sentence, grid=grid((*heads, *beside), rows))


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


def _running(run: Run, test: OfProcedure | None) -> dict[str, str]:
    information = run.information
    kind = "" if run.made_elsewhere else f"{rig_kind(run.scenario)}: "
    return {
        "name": f"{kind}{run.scenario.name}: {(test.record.ending if test else '') or run.ending}",
        "started": moment(information.get("started", "")),
        "run": information.get("run_id", ""),
    }


def _by_reason(left_out: Mapping[str, str]) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for part, reason in left_out.items():
        reasons.setdefault(reason, []).append(part)
    return reasons
