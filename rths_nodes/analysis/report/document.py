# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML page about a test: outcome, indices, figures, timing, resolved scenario.

Without scripts and external files it can be mailed, archived and printed. The figures are Figs. 7-11 of Chen &
Ricles (2010) as inline SVG; long histories are drawn by their envelopes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from rths_nodes.analysis import figures
from rths_nodes.analysis.figures.view import View
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report import head, parameters, procedure, set_up, tables
from rths_nodes.analysis.report.procedure import Part, grid, moment
from rths_nodes.analysis.units import DASH, MM, PERCENT, grouped, rounded
from rths_nodes.core.samples import FLAG_TRIPPED
from rths_nodes.core.version import __version__
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.scenario.titles import axis_names, label, rig_kind, simulation
from rths_nodes.procedure.records import ProcedureRecord
from rths_nodes.recording.procedure import OfProcedure
from rths_nodes.recording.run import Run

NO_SAFETY = "The software stop is not a safety function."
KINDS = {"finished": "good", "held": "bad", "tripped": "bad"}
"""CSS class by outcome."""


def write_report(run: Run, path: Path, reference: bool = False, test: OfProcedure | None = None) -> None:
    """Write the page about ``run`` to ``path``. Raises OSError.

    With ``reference`` errors of the response relative to the whole structure are added, and ConfigError is raised
    for a test without a structure. ``test``: the procedure, for head, set-up, checks, ladder.
    """
    write_page(path, render(run, reference, test))


def write_page(path: Path, text: str) -> None:
    """Write the text of a page, and make its folder. Raises OSError."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def render(run: Run, reference: bool = False, test: OfProcedure | None = None) -> str:
    of = Evaluation(run)
    beside = _beside(run, test)
    pictures = {figure.name: figure for figure in figures.drawn(View.one(of))}
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
        "across_words": head.across(simulation(run.scenario), run.made_elsewhere),
        "signs": test.record if test else None,
        "beside": beside,
        "stopped": head.STOPS.get(run.outcome, ""),
        "first": first_line(run, test),
        "procedure": _procedure(test),
        "direct": procedure.DIRECT,
        "set_up": _set_up(of, test),
        "floor": _floor(of, test.record if test else None),
        "summary": [*head.summary(of, "rung" if beside else "test"), *head.remarks(of)],
        "facts": {key: value for key, value in head.facts(of).items() if not verdict_of or key not in first_facts},
        "particulars": head.particulars(of),
        "running": _running(run, test),
        "parameters": parameters.sections(run.scenario),
        "tables": {
            "indices": tables.indices(of),
            "published": of.or_left_out("published indices", lambda: tables.published(of), None),
            "response": tables.response(of) if reference else None,
            "loads": tables.loads(of),
            "limits": tables.limits(of),
            "timing": tables.timing(run),
        },
        "paced": tables.paced(run),
        "flagged": tables.flagged(run),
        "figures": pictures.values(),
        "histograms": timing,
        "yaml": dump(run.scenario.data()),
        "notes": run.notes,
    }
    return template("report.html.j2").render(contents, left_out=_by_reason(of.left_out))


def write_record(record: ProcedureRecord, path: Path) -> None:
    """Write the page about a test without motion from its ``record`` alone. Raises OSError."""
    contents: dict[str, object] = {
        "outcome": record.ending or "not ended",
        "kind": "bad" if procedure.verdict(record) else "good",
        "verdict": procedure.verdict(record),
        "first": procedure.first_words(record),
        "first_facts": procedure.first_facts(record),
        "across_words": head.across(record.simulation),
        "signs": record,
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
    """Return the verdict on the first page; empty for a finished and valid test."""
    own = procedure.NOT_VALID if run.not_valid else ""
    if run.outcome != "finished":
        own = run.outcome.upper() if run.outcome in procedure.STOPPED else "NOT FINISHED"
    return (procedure.verdict(test.record) if test else "") or own


def _beside(run: Run, test: OfProcedure | None) -> str:
    """Return a text on the displayed rung if it ended differently from the test; else empty."""
    if test is None or run.ending != "finished" or not procedure.verdict(test.record):
        return ""
    rung = procedure.rung_of(test.record, test.folder)
    return f"rung {procedure.rung_title(rung.name)}" if rung else "a rung"


def _first_facts(run: Run) -> dict[str, str]:
    known, scenario = run.information, run.scenario
    rig = scenario.rig_file.name if scenario.rig_file else type(scenario.port).type_name
    return {
        "Scenario": scenario.name,
        "Started": moment(known.get("started", "–")),
        "Run": known.get("run_id", "–"),
        "Rig": rig,
    }


def first_line(run: Run, test: OfProcedure | None) -> str:
    """Return the first sentence of the page, on an unfinished or invalid test; else empty."""
    said = []
    reason = run.information.get("reason", "")
    if run.outcome != "finished":
        outcome = "interrupted" if reason.startswith("interrupted") else run.outcome
        ended = f"Test {outcome}" if outcome in procedure.STOPPED else "Recording not finished"
        stopped = np.flatnonzero(run.flags & FLAG_TRIPPED)
        at = int(stopped[0]) if len(stopped) else max(0, len(run.time) - 1)
        when = f"at sample {grouped(at)} of {grouped(run.scenario.samples)} ({at * run.scenario.dt:.4g}\u00a0s)"
        said.append(f"{ended} {when}: {reason or 'no reason was recorded'}")
    if run.not_valid:
        counted = f"{grouped(run.bridged)} of {grouped(len(run.time) - 1)} samples bridged"
        missed = f"{grouped(round(run.late.missed))} ticks missed"
        said.append(f"Test {run.not_valid}: {counted}, {missed}")
    if test is not None:
        words = procedure.first_words(test.record)
        told = reason or run.not_valid
        said += [words] if words and not (said and told and told in words) else []
    return ". ".join(said)


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


def _set_up(of: Evaluation, test: OfProcedure | None) -> list[Part]:
    found = test.record.checks if test else {}
    measured = {axis: each.stiffness for axis, each in found.items() if each.stiffness is not None}
    return [*set_up.parts(of, measured), *(procedure.rig(test.record) if test else ())]


def _floor(of: Evaluation, record: ProcedureRecord | None) -> Part:
    """Return the largest and rms error, mm and %, and the sensor's floor, below which no error is measured."""
    title = "Error beside the floor of the sensor"
    if len(of.counted) < 2:
        return Part(title)
    run, known = of.run, set_up.floors(of.scenario)
    before = record.offsets_before if record else None
    rows = []
    for index, axis in enumerate(run.axes):
        target = run.target[of.counted, index]
        error = target - run.displacement[of.counted, index]
        size, spread = float(np.abs(target).max()), float(np.sqrt(np.mean(target**2)))
        largest, rms = float(np.abs(error).max()), float(np.sqrt(np.mean(error**2)))
        seen = before.axes[axis].displacement_scatter if before and axis in before.axes else math.nan
        most = max([value for value in (known[axis], seen) if value > 0.0], default=math.nan)
        shares = [rounded(PERCENT * a / b if b else math.nan) for a, b in ((largest, size), (rms, spread))]
        numbers = [rounded(largest, MM), shares[0], rounded(rms, MM), shares[1]]
        numbers += [rounded(known[axis] or math.nan, MM), rounded(seen, MM), rounded(rms / most)]
        rows.append([axis_names(of.scenario)[axis], *numbers])
    if all(row[-1] == DASH for row in rows):
        return Part(
            title, words=("Neither noise nor resolution of a displacement sensor is stated: no floor is known.",)
        )
    heads = ("Axis", "largest error, mm", "of largest target, %", "rms error, mm", "of rms target, %")
    beside = ("floor of the sensor, mm", "scatter at rest, mm", "rms error over floor")
    words = (
        "Floor of the sensor: rms of its noise and its resolution, √(noise² + resolution²/12), of the rig file or "
        "of the simulated sensor. Scatter at rest: rms while the offsets were taken.",
    )
    return Part(title, words=words, grid=grid((*heads, *beside), rows))


@cache
def template(name: str) -> Template:
    """Load a template of the folder ``templates``; it escapes text."""
    places = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(
        loader=places, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["css"] = css_text
    environment.globals |= {"no_safety": NO_SAFETY, "version": __version__}
    return environment.get_template(name)


def css_text(text: str) -> str:
    """Return ``text`` as a CSS string; characters that could end string or style sheet are escaped."""
    return '"' + re.sub(r"[^A-Za-z0-9 _.,:-]", lambda found: f"\\{ord(found[0]):x} ", text) + '"'


def _running(run: Run, test: OfProcedure | None) -> dict[str, str]:
    known = run.information
    kind = "" if run.made_elsewhere else f"{rig_kind(run.scenario)}: "
    return {
        "name": f"{kind}{run.scenario.name}: {(test.record.ending if test else '') or run.ending}",
        "started": moment(known.get("started", "")),
        "run": known.get("run_id", ""),
    }


def _by_reason(left_out: Mapping[str, str]) -> dict[str, list[str]]:
    """Group the missing parts by reason."""
    found: dict[str, list[str]] = {}
    for part, reason in left_out.items():
        found.setdefault(reason, []).append(part)
    return found
