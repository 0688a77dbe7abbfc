# SPDX-License-Identifier: Apache-2.0
"""Head of the report: facts of the test, and sentences on its result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rths_nodes.analysis import energy
from rths_nodes.analysis.histories import Evaluation, largest
from rths_nodes.analysis.report.procedure import moment
from rths_nodes.analysis.units import MM, MS, early_or_late, grouped, number, quantity, rounded
from rths_nodes.core.data import Data
from rths_nodes.core.parameter_table import table
from rths_nodes.core.parameters import declared
from rths_nodes.core.validation import to_data
from rths_nodes.loop.scenario.titles import axis_names, label
from rths_nodes.loop.stages.learning_notes import learning_notes
from rths_nodes.recording.run import Run

STOPS = {"held": "held", "tripped": "stopped by a limit"}
"""Text by outcome of an unfinished test."""


_TOLD = (
    *("actuator_nodes", "gaps", "host", "lost", "outcome", "pace", "reason", "rig_kind", "run_id", "samples"),
    *("scenario", "started", "version"),
)
"""Names on the page of a run's information."""


def across(simulation: str, made_elsewhere: bool = False) -> str:
    """Return the banner of the page: the kind of rig."""
    if made_elsewhere:
        return "MADE ELSEWHERE: the histories are as they were imported"
    return f"{label(simulation)}: no steel moved" if simulation else label(simulation)


def facts(of: Evaluation) -> dict[str, str]:
    """Return the facts above the first figure."""
    known = of.run.information
    return {
        "Imported" if of.run.made_elsewhere else "Started": moment(known.get("started", "–")),
        "Run": known.get("run_id", "–"),
        "Excitation": _excitation(of),
        "Compensator": type(of.scenario.compensator).type_name,
    }


def particulars(of: Evaluation) -> dict[str, str]:
    """Return the other facts that identify a test."""
    run, scenario, known = of.run, of.scenario, of.run.information
    port = scenario.port
    transport = not port.cannot_be_built or "transport_samples" in declared(type(port))
    found = {
        "Host": known.get("host", "–"),
        "Pace": known.get("pace", "–"),
        "Actuator nodes": known.get("actuator_nodes", "one").replace("_", " "),
        "rths_nodes": known.get("version", "–"),
        **_static_stage(run),
        "Seed": str(scenario.seed),
        "Servo rate": f"{scenario.servo_rate:g} Hz",
        "Integration step": f"{scenario.step * MS:.4g} ms = {scenario.samples_per_step} samples",
        "Steps": _of(len(run.step_time) - 1, scenario.steps),
        "Samples": _of(len(run.time) - 1, scenario.samples),
        "Transport samples q": str(port.transport_samples) if transport else "declared by the port",
    }
    if scenario.hops.depth:
        found["Samples p under way in hops"] = str(scenario.hops.depth)
    if scenario.time_ratio > 1:
        found["Time axis"] = f"the rig moves {scenario.time_ratio:g} times slower"
    if "gaps" in known:
        lost = f" ({known['lost']})" if known.get("lost") else ""
        found["Missing in the recording"] = f"{known['gaps']} gaps{lost}" if known["gaps"] != "0" else "nothing"
    others = {key.replace("_", " ").capitalize(): known[key] for key in sorted(known) if key not in _TOLD}
    return found | {name: value for name, value in others.items() if value}


def _static_stage(run: Run) -> dict[str, str]:
    """Return the initial state of a client's displacements and forces; empty if zero."""
    stage = run.integrator.get("static_stage", {})
    moved, force = (stage.get(name) for name in ("displacement", "force")) if isinstance(stage, dict) else ((), ())
    if not (isinstance(moved, list) and isinstance(force, list) and any(moved)) or len(moved) != len(force):
        return {}
    rows = zip(run.dof_names, moved, force, strict=False)
    return {"Static stage": ", ".join(f"{name} {x * MM:.4g} mm, {f:.4g} N" for name, x, f in rows)}


def _of(done: int, planned: int) -> str:
    done = max(0, done)  # nothing was recorded, not even the initial state
    return grouped(done) if done == planned else f"{grouped(done)} of {grouped(planned)}"


def _excitation(of: Evaluation) -> str:
    scenario = of.scenario
    prescribed = scenario.structure is None and scenario.integrator.ground is None
    moving = scenario.integrator.displacement if prescribed else scenario.ground_motion
    if prescribed and moving is None and of.run.made_elsewhere:
        return "not known here: there is no input energy, and no HSEM in percent"
    if prescribed and moving is None:
        return "that of the client, which is not known here: there is no input energy, and no HSEM in percent"
    data = to_data(moving) or {}
    if data.get("type") == "record":
        words = [data["record"] or Path(str(data["file"])).name, f"scale {data['scale']:g}"]
    else:
        words = [str(data.get("type", "–"))]
        for row in table(type(moving)) if data else ():
            if isinstance(data[row.name], (int, float)):  # "m/s^2 or m": of a ground motion, or prescribed
                unit = row.unit.split(" or ")[-1 if prescribed else 0].strip("-").replace("^2", "²")
                words.append(f"{row.name} {data[row.name]:g} {unit}".rstrip())
    ground = of.or_left_out("peak of the excitation", lambda: energy.ground_acceleration(of), np.zeros(0))
    peak = largest(ground)
    if peak > 0.0:
        until = "" if of.run.outcome == "finished" else " up to the stop"
        words.append(f"peak {peak:.3g} m/s²{until}")
    return ", ".join(words)


def summary(of: Evaluation, noun: str) -> list[str]:
    """Return the result of a ``noun`` in sentences; for a stopped test, with a reference to the reason."""
    run = of.run
    axes: Data = run.metrics.get("axes") or {}
    several = len(axes) > 1
    end = float(run.time[-1]) if len(run.time) else 0.0
    planned = run.scenario.samples * run.scenario.dt
    sentences = []
    if run.outcome == "finished":
        doubt = f", but is {run.not_valid}" if run.not_valid else ""
        sentences.append(f"The {noun} ran to its end after {planned:.4g}\u00a0s{doubt}.")
    elif run.outcome in STOPS:
        sentences.append(f"and at rest after {end:.4g}\u00a0s of {planned:.4g}\u00a0s.")
    errors = {name: error for name in axes if (error := number(axes[name].get("max_error_m"))) is not None}
    if not errors or len(run.time) < 2:
        return [*sentences, "No indices were recorded."]
    worst = max(errors, key=errors.__getitem__)
    index = axes[worst]
    who = f"All {len(axes)} actuators followed their targets" if several else "The actuator followed its target"
    share = number(index.get("max_error_percent"))
    relative = f" ({rounded(share, digits=2)}\u00a0% of the largest target)" if share is not None else ""
    at = f", the worst of them {axis_names(run.scenario)[worst]}" if several else ""
    sentences.append(f"{who} within {quantity(errors[worst], MM, 'mm')}{relative}{at}.")
    sentences += _delay(of, worst, index)
    hsem = number(run.metrics.get("hsem_percent"))
    if hsem is not None:
        whose = "Their errors" if several else "Its error"
        did = "fed energy into" if hsem > 0.0 else "took energy out of"
        part = f"{quantity(abs(hsem), 1.0, '%')} of the input energy"
        sentences.append(f"{whose} {did} the structure: {part}.")
    return sentences


def remarks(of: Evaluation) -> list[str]:
    """Return sentences on the compensator's last inner numbers."""
    run = of.run
    if not len(of.counted):
        return []
    last = dict(zip(run.compensator_names, run.compensator[of.counted[-1]].tolist(), strict=True))
    return [
        # a name with dots stays as it is
        f"{words}." if "." in words.split(maxsplit=1)[0] else f"{words[0].upper()}{words[1:]}."
        for words in (*run.scenario.compensator.remarks(last), *learning_notes(run.integrator, run.scenario))
    ]


def _delay(of: Evaluation, axis: str, index: Mapping[str, object]) -> list[str]:
    delay = number(index.get("delay_s"))
    if delay is None:
        return []
    words = f"It was {early_or_late(delay)} over the whole test, in which the fastest motion counts most"
    found = of.windowed
    column = None if found is None else found.delay[:, of.run.axes.index(axis)]
    if found is None or column is None or not np.isfinite(column).any():
        return [f"{words}."]
    low, high = early_or_late(float(np.nanmin(column))), early_or_late(float(np.nanmax(column)))
    windows = f"in windows of {found.length:.2g}\u00a0s, by the frequency evaluation index,"
    return [f"{words}; {windows} between {low} and {high}."]
