"""One self-contained HTML page about a test: outcome, indices, figures, timing, the resolved scenario.

No scripts and nothing from outside: it can be mailed, archived, printed and read in ten years. The figures
are those of Chen & Ricles (2010), Figs. 7-11, as inline SVG; long histories are drawn by their envelopes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from rths_nodes.analysis import energy, figures
from rths_nodes.analysis.figures import thinning
from rths_nodes.analysis.report import tables
from rths_nodes.analysis.report.page import framed
from rths_nodes.analysis.units import MM, MS, grouped, number, quantity, rounded
from rths_nodes.core.parameter_table import table
from rths_nodes.core.strict import as_data
from rths_nodes.core.yaml_text import dump
from rths_nodes.recording.run import Run

NO_SAFETY = "The software stop is not a safety function."

_NOTES = (
    "Positive displacement: extension of the axis as drawn in the rig file. Positive force: the "
    "specimen’s restoring force against positive displacement.",
    "Target: what the numerical substructure asks for (d<sup>c</sup>). Command: what the compensator "
    "makes of it (d<sup>p</sup>). Measured: where the actuator was (d<sup>m</sup>). "
    "Control error = target − measured.",
    "A positive delay, a rising tracking indicator and a positive energy error all mean that the "
    "actuator lags; a lag acts on the structure like negative damping.",
    "Transport samples q: a command acts q samples after it was sent; q = 0 is an idealisation that "
    "only a simulator can do.",
    "Loop: from sending a Measurement to having the next Command. Its mean is that of the compensator, of the "
    "integrator (by its share of the samples) and of the transport by the middleware; other columns do not add "
    "up.",
    "Indices count the samples of the test, not those of a soft start or a safe stop. Long histories are "
    "drawn by their envelopes; the indices come from all samples.",
    f"<b>{NO_SAFETY}</b> A rig needs its own interlocks.",
)


def write_report(run: Run, path: Path, reference: bool = False) -> None:
    """Write the page about ``run`` to ``path``. Raises OSError when it cannot be written there.

    With ``reference`` the whole structure is computed in one piece, and the errors of the response are added;
    raises ConfigError for a test without a structure.
    """
    page = render(run, reference)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(page, encoding="utf-8")


def render(run: Run, reference: bool = False) -> str:
    """The page as text."""
    sections = {
        "Indices": tables.indices(run),
        **({"Response": tables.response(run)} if reference else {}),
        "Figures": _figures(run),
        "Timing": tables.timing(run) + _histograms(run),
        "Reading this page": f"<ul>{''.join(f'<li>{note}</li>' for note in _NOTES)}</ul>",
        "Details": _details(run),
    }
    parts = [f"<section><h2>{title}</h2>{content}</section>" for title, content in sections.items()]
    return framed(f"{escape(run.scenario.name)}: {escape(run.outcome)}", "\n".join([_head(run), *parts]))


def _head(run: Run) -> str:
    scenario, reason = run.scenario, run.information.get("reason", "")
    kind = {"finished": "good", "held": "bad", "tripped": "bad"}.get(run.outcome, "unknown")
    why = f'<p class="reason {kind}">{escape(reason)}</p>' if reason else ""
    about = f'<p class="about">{escape(scenario.description)}</p>' if scenario.description else ""
    facts = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in _facts(run).items())
    return (
        f'<header><div class="line"><h1>{escape(scenario.name)}</h1>'
        f'<span class="badge {kind}">{escape(run.outcome)}</span></div>{about}{why}'
        f'<p class="summary">{_summary(run)}</p><dl class="facts">{facts}</dl></header>'
    )


def _facts(run: Run) -> dict[str, str]:
    """What stands in the head of the page, in order."""
    scenario, known = run.scenario, run.information
    transport = getattr(scenario.port, "transport_samples", None)
    facts = {
        "Started": re.sub(r"^(\S+)T(\S+?)\+00:00$", r"\1 \2 UTC", known.get("started", "–")),
        "Run": known.get("run_id", "–"),
        "Host": known.get("host", "–"),
        "Pace": known.get("pace", "–"),
        "Actuator nodes": known.get("actuator_nodes", "one").replace("_", " "),
        "rths_nodes": known.get("version", "–"),
        "Excitation": _excitation(run),
        "Seed": str(scenario.seed),
        "Servo rate": f"{scenario.servo_rate:g} Hz",
        "Integration step": f"{scenario.step * MS:.4g} ms = {scenario.samples_per_step} samples",
        "Steps": _of(len(run.step_time) - 1, scenario.steps),
        "Samples": _of(len(run.time) - 1, scenario.samples),
        "Transport samples q": "declared by the port" if transport is None else str(transport),
        "Compensator": type(scenario.compensator).type_name,
    }
    if scenario.time_ratio > 1:
        facts["Time axis"] = f"the rig moves {scenario.time_ratio} times slower"
    if "gaps" in known:
        lost = f" ({known['lost']})" if known.get("lost") else ""
        facts["Missing in the recording"] = f"{known['gaps']} gaps{lost}" if known["gaps"] != "0" else "nothing"
    return facts


def _of(done: int, planned: int) -> str:
    done = max(0, done)  # nothing was recorded, not even the initial state
    return grouped(done) if done == planned else f"{grouped(done)} of {grouped(planned)}"


def _excitation(run: Run) -> str:
    scenario = run.scenario
    prescribed = scenario.structure is None
    moving = getattr(scenario.integrator, "displacement", None) if prescribed else scenario.ground_motion
    data = as_data(moving) or {}
    if data.get("type") == "record":
        words = [data["record"] or Path(str(data["file"])).name, f"scale {data['scale']:g}"]
    else:
        words = [str(data.get("type", "–"))]
        for row in table(type(moving)) if data else ():
            if isinstance(data[row.name], (int, float)):  # "m/s^2 or m": of a ground motion, or prescribed
                unit = row.unit.split(" or ")[-1 if prescribed else 0].strip("-").replace("^2", "²")
                words.append(f"{row.name} {data[row.name]:g} {unit}".rstrip())
    peak = thinning.largest(energy.ground_acceleration(run))
    if peak > 0.0:
        until = "" if run.outcome == "finished" else " up to the stop"
        words.append(f"peak {peak:.3g} m/s²{until}")
    return ", ".join(words)


def _summary(run: Run) -> str:
    """The result in plain sentences (HTML)."""
    axes: Mapping[str, Any] = run.metrics.get("axes") or {}
    several = len(axes) > 1
    end = float(run.time[-1]) if len(run.time) else 0.0
    planned = run.scenario.samples * run.scenario.dt
    sentences = []
    if run.outcome == "finished":
        sentences.append(f"The test ran to its end after {planned:.4g}\u00a0s.")
    elif run.outcome in ("held", "tripped"):
        how = "stopped by a limit" if run.outcome == "tripped" else "held"
        sentences.append(f"<b>The test was {how}</b> and at rest after {end:.4g}\u00a0s of {planned:.4g}\u00a0s.")
    errors = {name: error for name in axes if (error := number(axes[name].get("max_error_m"))) is not None}
    if not errors:
        return " ".join([*sentences, "No indices were recorded."])
    worst = max(errors, key=errors.__getitem__)
    index = axes[worst]
    who = f"All {len(axes)} actuators followed their targets" if several else "The actuator followed its target"
    share = number(index.get("max_error_percent"))
    relative = f" ({rounded(share, digits=2)}\u00a0% of the largest target)" if share is not None else ""
    at = f", the worst of them {escape(worst)}" if several else ""
    sentences.append(f"{who} within {quantity(errors[worst], MM, 'mm')}{relative}{at}{_late(index)}.")
    hsem = number(run.metrics.get("hsem_percent"))
    if hsem is not None:
        whose = "Their errors" if several else "Its error"
        did = "fed energy into" if hsem > 0.0 else "took energy out of"
        part = f"{quantity(abs(hsem), 1.0, '%')} of the input energy"
        sentences.append(f"{whose} {did} the structure: {part}.")
    return " ".join(sentences)


def _late(index: Mapping[str, Any]) -> str:
    delay = number(index.get("delay_s"))
    if delay is None:
        return ""
    return f", on average {quantity(abs(delay), MS, 'ms')} {'late' if delay >= 0.0 else 'early'}"


def _figures(run: Run) -> str:
    drawn = [
        _figure(svg, caption, f'<h3><span class="no">{n}</span>{title}</h3>')
        for n, (title, caption, svg) in enumerate(figures.drawn(run), 1)
    ]
    return "".join(drawn) or "<p>Too few samples to draw.</p>"


def _histograms(run: Run) -> str:
    svg = figures.histograms(run)
    return _figure(svg, "How often (logarithmic) a duration occurred.") if svg else ""


def _figure(svg: str, caption: str, heading: str = "") -> str:
    return f'<figure>{heading}<div class="wide">{svg}</div><figcaption>{caption}</figcaption></figure>'


def _details(run: Run) -> str:
    known = [
        (escape(key), escape(str(value))) for key, value in sorted(run.information.items()) if key != "scenario"
    ]
    rows = "".join(f"<tr><th>{key}</th><td>{value}</td></tr>" for key, value in known)
    about = f"<details><summary>About the run</summary><table>{rows}</table></details>" if rows else ""
    return (
        "<details><summary>Scenario, complete with all defaults (YAML)</summary>"
        f"<pre>{escape(dump(run.scenario.data()))}</pre></details>{about}"
    )
