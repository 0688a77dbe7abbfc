"""One self-contained HTML page about a test: outcome, indices, figures, timing, the resolved scenario.

No scripts and nothing from outside: it can be mailed, archived, printed and read in ten years. The figures
are those of Chen & Ricles (2010), Figs. 7-11, as inline SVG; long histories are drawn by their envelopes.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from rths_nodes import __version__
from rths_nodes.components import FLAG_BRIDGED, FLAG_SATURATED, FLAG_SLIPPED, FLAG_TRIPPED, Array
from rths_nodes.params import ConfigError, as_data, table
from rths_nodes.record import analysis
from rths_nodes.record.run import Run
from rths_nodes.scenario import dump

NO_SAFETY = "The software stop is not a safety function."

MM, MM2, KN, PERCENT, MS, US = 1e3, 1e6, 1e-3, 1.0, 1e3, 1e6
"""Factors from SI to what is shown."""

WIDTH = 7.4
"""Width of a figure, inches; the browser scales it."""
COLUMNS = 700
"""Dots across a time plot: finer than this nothing is drawn."""
CELLS = 1200
"""Dots across a plot of one quantity over another."""
RASTER = 12_000
"""A curve with more points than this becomes dots instead of lines of SVG."""
ZOOM = 2.0
"""Seconds of the magnified part of the displacements."""

INK, FAINT, BAND, GRID = "#1a1a1a", "#8c8c8c", "#bdbdbd", "#e4e4e4"
BAND_WIDTH = 2.8
"""Points: the target lies as a broad band under the measured displacement."""
DASHES = (0, (3, 1.2))
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Okabe & Ito (2008): told apart with every kind of colour vision. One colour per axis."""
LINES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)))
"""Line styles of the first, second and third six."""
SHADES = (
    (FLAG_BRIDGED, "bridged", "#E69F00"),
    (FLAG_SLIPPED, "slipped", "#CC79A7"),
    (FLAG_SATURATED, "sensor saturated", "#56B4E9"),
    (FLAG_TRIPPED, "safe stop", "#D55E00"),
)
STATE_UNITS = {
    "alpha": ("α", "samples", 1.0),
    "delta_alpha": ("Δα", "samples", 1.0),
    "tracking_indicator": ("tracking indicator", "mm²", MM2),
    "delay": ("delay", "ms", MS),
}
"""Known states of compensators: symbol, unit and factor; others are shown by name as they were recorded."""
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rths_nodes",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "axes.titlesize": 8.0,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.xmargin": 0.0,
    "axes.formatter.limits": (-3, 5),
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.0,
    "lines.solid_joinstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "figure.dpi": 100,
    "savefig.dpi": 170,
    "path.simplify_threshold": 0.2,
}


def write_report(run: Run, path: Path) -> None:
    """Write the page about ``run`` to ``path``. Raises ConfigError when it cannot be written there."""
    page = render(run)
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"report {str(path)!r}: cannot be written ({error.strerror or error})") from None


def render(run: Run) -> str:
    """The page as text."""
    name = escape(run.scenario.name)
    body = "\n".join([_head(run), _indices(run), _drawn(run), _timing(run), _notes(), _details(run)])
    return _PAGE.format(title=f"{name}: {escape(run.outcome)}", style=_CSS, body=body, version=escape(__version__))


# --- numbers in words -------------------------------------------------------------------------------------


def rounded(value: Any, factor: float = 1.0, digits: int = 3) -> str:
    """``digits`` significant figures but at most as many decimals; a dash where there is no finite number."""
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return "–"
    value = float(value) * factor
    size = abs(value)
    if size < 10.0**-digits:
        least = f"{10.0**-digits:.{digits}f}"
        return f"&lt; {least}" if value > 0.0 else f"&gt; −{least}" if value < 0.0 else "0"
    decimals = digits if size < 1.0 else max(0, digits - 1 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}".replace("-", "−").replace(",", "\u202f")


def _quantity(value: Any, factor: float, unit: str, digits: int = 2) -> str:
    return f"{rounded(value, factor, digits)}\u00a0{unit}"


def _largest(values: Array) -> float:
    usable = np.abs(values[np.isfinite(values)])
    return float(usable.max()) if usable.size else math.nan


# --- head and tables --------------------------------------------------------------------------------------


def _head(run: Run) -> str:
    scenario, known = run.scenario, run.information
    reason = known.get("reason", "")
    kind = {"finished": "good", "held": "bad", "tripped": "bad"}.get(run.outcome, "unknown")
    why = f'<p class="reason {kind}">{escape(reason)}</p>' if reason else ""
    about = f'<p class="about">{escape(scenario.description)}</p>' if scenario.description else ""
    facts = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in _facts(run))
    return (
        f'<header><div class="line"><h1>{escape(scenario.name)}</h1>'
        f'<span class="badge {kind}">{escape(run.outcome)}</span></div>{about}{why}'
        f'<p class="summary">{_summary(run)}</p><dl class="facts">{facts}</dl></header>'
    )


def _facts(run: Run) -> list[tuple[str, str]]:
    """What stands in the head of the page, in order."""
    scenario, known = run.scenario, run.information
    samples, steps = max(0, len(run.time) - 1), max(0, len(run.step_time) - 1)
    transport = getattr(scenario.port, "transport_samples", None)
    facts = [(title, known.get(key, "–")) for title, key in _INFORMATION]
    facts[0] = (facts[0][0], re.sub(r"^(\S+)T(\S+?)\+00:00$", r"\1 \2 UTC", facts[0][1]))
    facts += [
        ("Excitation", _excitation(run)),
        ("Seed", str(scenario.seed)),
        ("Servo rate", f"{scenario.servo_rate:g} Hz"),
        ("Integration step", f"{scenario.step * MS:.4g} ms = {scenario.substeps} samples"),
        ("Steps", _of(steps, scenario.steps)),
        ("Samples", _of(samples, scenario.samples)),
        ("Transport samples q", "declared by the port" if transport is None else str(transport)),
        ("Compensator", getattr(type(scenario.compensator), "type_name", "–")),
    ]
    if "gaps" in known:
        facts.append(("Missing in the recording", f"{known['gaps']} gaps" if known["gaps"] != "0" else "nothing"))
    return facts


_INFORMATION = (
    ("Started", "started"),
    ("Run", "run_id"),
    ("Host", "host"),
    ("Pace", "pace"),
    ("rths_nodes", "version"),
)
"""Title in the head and key of the information about the run."""


def _of(done: int, planned: int) -> str:
    counted = f"{done:,}".replace(",", "\u202f")
    return counted if done == planned else f"{counted} of {planned:,}".replace(",", "\u202f")


def _excitation(run: Run) -> str:
    scenario = run.scenario
    prescribed = scenario.structure is None
    moving = getattr(scenario.integrator, "displacement", None) if prescribed else scenario.ground_motion
    data = as_data(moving) or {}
    if data.get("type") == "record":
        words = [data["record"] or Path(str(data["file"])).name, f"scale {data['scale']:g}"]
    else:
        words = [str(data.get("type", "–"))]
        for row in table(type(moving)) if moving is not None else ():
            if isinstance(data[row.name], (int, float)):  # "m/s^2 or m": of a ground motion, or prescribed
                unit = row.unit.split(" or ")[-1 if prescribed else 0].strip("-").replace("^2", "²")
                words.append(f"{row.name} {data[row.name]:g} {unit}".rstrip())
    peak = _largest(analysis.ground_acceleration(run))
    if peak > 0.0:
        until = "" if run.outcome == "finished" else " up to the stop"
        words.append(f"peak {peak:.3g} m/s²{until}")
    return ", ".join(words)


def _summary(run: Run) -> str:
    """The result in plain sentences (HTML)."""
    axes: Mapping[str, Any] = run.metrics.get("axes") or {}
    end = float(run.time[-1]) if len(run.time) else 0.0
    planned = run.scenario.samples * run.scenario.dt
    sentences = []
    if run.outcome == "finished":
        sentences.append(f"The test ran to its end after {planned:.4g}\u00a0s.")
    elif run.outcome in ("held", "tripped"):
        how = "stopped by a limit" if run.outcome == "tripped" else "held"
        sentences.append(f"<b>The test was {how}</b> and at rest after {end:.4g}\u00a0s of {planned:.4g}\u00a0s.")
    ranked = [name for name in axes if _number(axes[name].get("max_error_m")) is not None]
    if not ranked:
        return " ".join([*sentences, "No indices were recorded."])
    worst = max(ranked, key=lambda name: float(axes[name]["max_error_m"]))
    index = axes[worst]
    if len(axes) == 1:
        who = "The actuator followed its target"
    else:
        who = f"All {len(axes)} actuators followed their targets"
    share = _number(index.get("max_error_percent"))
    relative = f" ({rounded(share, digits=2)}\u00a0% of the largest target)" if share is not None else ""
    at = "" if len(axes) == 1 else f", the worst of them {escape(worst)}"
    sentences.append(f"{who} within {_quantity(index['max_error_m'], MM, 'mm')}{relative}{at}{_late(index)}.")
    hsem = _number(run.metrics.get("hsem_percent"))
    if hsem is not None:
        did = "fed energy into" if hsem > 0.0 else "took energy out of"
        share_of = f"{_quantity(abs(hsem), PERCENT, '%')} of the input energy"
        errors = "Its error" if len(axes) == 1 else "Their errors"
        sentences.append(f"{errors} {did} the structure: {share_of}.")
    return " ".join(sentences)


def _late(index: Mapping[str, Any]) -> str:
    delay = _number(index.get("delay_s"))
    if delay is None:
        return ""
    return f", on average {_quantity(abs(delay), MS, 'ms')} {'late' if delay >= 0.0 else 'early'}"


def _number(value: Any) -> float | None:
    """``value`` if it is a finite number."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


_AXIS_INDICES = (
    (
        "Largest control error",
        "max_error_m",
        MM,
        "mm",
        "max |target − measured| (Chen &amp; Ricles 2010, Table 2)",
    ),
    (
        "Largest control error, relative",
        "max_error_percent",
        PERCENT,
        "%",
        "the same, as a share of the largest target (Chen &amp; Ricles 2010, Table 2)",
    ),
    (
        "Error norm",
        "error_norm_percent",
        PERCENT,
        "%",
        "RMS of the control error as a share of the RMS of the target (Chen &amp; Ricles 2010, Eq. 15)",
    ),
    (
        "Delay",
        "delay_s",
        MS,
        "ms",
        "shift at which target and measurement are most alike (peak of the cross-correlation); positive: late",
    ),
    (
        "Tracking indicator at the end",
        "tracking_indicator_m2",
        MM2,
        "mm²",
        "TI = (A − TA)/2, area enclosed in the synchronisation plot (Chen &amp; Ricles 2010, Eqs. 8–9b); "
        "grows while the actuator lags",
    ),
)
_TEST_INDICES = (
    (
        "Energy error HSEM",
        "hsem_percent",
        PERCENT,
        "%",
        "energy that the tracking error fed in, as a share of the input energy, at the end "
        "(Mosqueda et al. 2007; Chen &amp; Ricles 2010, Fig. 11); positive: lag",
    ),
    ("Largest displacement", "max_displacement_m", MM, "mm", "of the degree of freedom that moved most"),
    ("Smallest displacement", "min_displacement_m", MM, "mm", "of the same degree of freedom"),
    ("Displacement at the end", "end_displacement_m", MM, "mm", "of the same; what remains after yielding"),
)


def _indices(run: Run) -> str:
    axes: Mapping[str, Any] = run.metrics.get("axes") or {}
    names = list(run.axes)
    rows = []
    for title, key, factor, unit, meaning in _AXIS_INDICES:
        values = [axes.get(name, {}).get(key) for name in names]
        rows.append(_row(title, [rounded(value, factor) for value in values], unit, meaning))
    rows += _true_rows(run)
    for title, key, factor, unit, meaning in _TEST_INDICES:
        value = rounded(run.metrics.get(key), factor)
        rows.append(_row(title, [value], unit, meaning, span=len(names)))
    heads = "".join(f'<th class="n">{escape(name)}</th>' for name in names)
    return (
        '<section><h2>Indices</h2><div class="wide"><table class="indices"><thead><tr><th>Index</th>'
        f"{heads}<th>Unit</th><th>What it is</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
        "</div></section>"
    )


def _true_rows(run: Run) -> list[str]:
    error = analysis.true_error(run)
    if error is None:
        return []
    meaning = "the same from the true, noise-free state that only a simulator knows"
    return [
        _row("Largest true error", [rounded(float(v), MM) for v in error.maximum], "mm", meaning),
        _row("Norm of the true error", [rounded(float(v)) for v in error.norm_percent], "%", meaning),
    ]


def _row(title: str, values: Sequence[str], unit: str, meaning: str, span: int = 1) -> str:
    start = f'<td class="n mid" colspan="{span}">' if span > 1 else '<td class="n">'
    cells = "".join(f"{start}{value}</td>" for value in values)
    return f'<tr><th>{title}</th>{cells}<td>{unit}</td><td class="why">{meaning}</td></tr>'


def _notes() -> str:
    return (
        "<section><h2>Reading this page</h2><ul>"
        "<li>Positive displacement: extension of the axis as drawn in the rig file. Positive force: the "
        "specimen’s restoring force against positive displacement.</li>"
        "<li>Target: what the numerical substructure asks for (d<sup>c</sup>). Command: what the compensator "
        "makes of it (d<sup>p</sup>). Measured: where the actuator was (d<sup>m</sup>). "
        "Control error = target − measured.</li>"
        "<li>A positive delay, a rising tracking indicator and a positive energy error all mean that the "
        "actuator lags; a lag acts on the structure like negative damping.</li>"
        "<li>Transport samples q: a command acts q samples after it was sent; q = 0 is an idealisation that "
        "only a simulator can do.</li>"
        "<li>Indices count the samples that the test drove, not those of a safe stop. Long histories are "
        "drawn by their envelopes; the indices come from all samples.</li>"
        f"<li><b>{NO_SAFETY}</b> A rig needs its own interlocks.</li></ul></section>"
    )


def _details(run: Run) -> str:
    known = {key: value for key, value in run.information.items() if key != "scenario"}
    pairs = [(escape(key), escape(str(value))) for key, value in sorted(known.items())]
    rows = "".join(f"<tr><th>{key}</th><td>{value}</td></tr>" for key, value in pairs)
    about = f"<details><summary>About the run</summary><table>{rows}</table></details>" if rows else ""
    return (
        "<section><h2>Details</h2><details><summary>Scenario, complete with all defaults (YAML)</summary>"
        f"<pre>{escape(dump(run.scenario.data()))}</pre></details>{about}</section>"
    )


# --- figures ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _View:
    """A run and what is drawn of it."""

    run: Run
    running: analysis.Histories
    spans: list[tuple[str, str, list[tuple[float, float]]]]

    @property
    def axes(self) -> list[tuple[int, str, str, Any]]:
        """Number, name, colour and line style of each axis."""
        return _styled(self.run.axes)


_Entry = tuple[str, str, Any]
"""Of a legend: label, colour, line style."""
_Drawing = tuple[str, str, Figure]
"""Title and caption (HTML), figure."""


def _styled(names: Iterable[str]) -> list[tuple[int, str, str, Any]]:
    n = len(PALETTE)
    return [(k, name, PALETTE[k % n], LINES[k // n % len(LINES)]) for k, name in enumerate(names)]


def _drawn(run: Run) -> str:
    """All figures that this run has enough numbers for."""
    running = analysis.histories(run)
    if len(running.time) < 2:
        return "<section><h2>Figures</h2><p>Too few samples to draw.</p></section>"
    view = _View(run, running, _spans(run))
    figures: list[str] = []
    with matplotlib.rc_context(STYLE):
        for draw in _FIGURES:
            drawing = draw(view)
            if drawing is not None:
                figures.append(_figure(len(figures) + 1, *drawing))
    return f"<section><h2>Figures</h2>{''.join(figures)}</section>"


def _figure(number: int, title: str, caption: str, figure: Figure) -> str:
    return (
        f'<figure><h3><span class="no">{number}</span>{title}</h3>'
        f'<div class="wide">{_svg(figure, title)}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _svg(figure: Figure, title: str) -> str:
    """The figure as an SVG element of the page: no prolog, no ids that could meet those of its neighbours."""
    with matplotlib.rc_context({"svg.hashsalt": title}), io.StringIO() as buffer:
        figure.savefig(buffer, format="svg")
        svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r"(font: [\d.]+px)[^;\"]*", r"\1 var(--face)", svg)
    svg = re.sub(r' d="[^"]*"', lambda found: _DECIMALS.sub(r"\1", found[0]).replace("\n", ""), svg)
    svg = re.sub(r"\n\s*", "\n", svg)
    label = re.sub(r"<[^>]*>", "", title)
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


_DECIMALS = re.compile(r"(\d\.\d\d)\d+")


def _spans(run: Run) -> list[tuple[str, str, list[tuple[float, float]]]]:
    """Label, colour and stretches of time of the flagged samples; each stretch is wide enough to be seen."""
    found = []
    least = max(1, len(run.time) // COLUMNS)
    for flag, label, colour in SHADES:
        marked = (run.flags & flag) != 0
        if not marked.any():
            continue
        cells = analysis.intervals(np.add.reduceat(marked, np.arange(0, len(marked), least)) > 0)
        dt = run.scenario.dt  # sample k stands at the end of its period
        stretches = [((first * least - 1) * dt, ((last + 1) * least - 1) * dt) for first, last in cells]
        found.append((f"{label} ({int(marked.sum())})", colour, stretches))
    return found


def _sheet(
    heights: Sequence[float],
    entries: Sequence[_Entry],
    widths: Sequence[float] = (1.0,),
    shades: Sequence[_Entry] = (),
    bottom: float = 0.42,
    gap: float = 0.14,
    between: float = 0.2,
    titled: bool = False,
) -> tuple[Figure, Any]:
    """A figure with one row of axes per height (inches) and one legend on top, of (label, colour, line)."""
    handles: list[Any] = [
        Line2D([], [], color=colour, linestyle=line, lw=BAND_WIDTH if colour == BAND else 1.2)
        for _, colour, line in entries
    ]
    handles += [Patch(color=colour, alpha=0.3, lw=0.0) for _, colour, _ in shades]
    labels = [entry[0] for entry in (*entries, *shades)]
    longest = max((len(label) for label in labels), default=0)
    across = max(1, min(len(labels) or 1, int((WIDTH - 0.6) / (0.068 * longest + 0.45))))
    top = 0.17 * math.ceil(len(labels) / across) + (0.3 if titled else 0.12)
    inside = sum(heights) + gap * (len(heights) - 1)
    height = top + inside + bottom
    figure = Figure(figsize=(WIDTH, height))
    left, right = 0.66 / WIDTH, 1.0 - 0.16 / WIDTH
    grid = {
        "left": left,
        "right": right,
        "bottom": bottom / height,
        "top": 1.0 - top / height,
        "hspace": gap / (sum(heights) / len(heights)),
        "wspace": between,
        "height_ratios": heights,
        "width_ratios": widths,
    }
    axes = figure.subplots(len(heights), len(widths), squeeze=False, gridspec_kw=grid)
    if labels:
        place = {"loc": "upper left", "bbox_to_anchor": (left - 0.01, 1.0), "borderaxespad": 0.1}
        spacing = {"handlelength": 1.8, "columnspacing": 1.4, "labelspacing": 0.2}
        figure.legend(handles, labels, ncols=across, **place, **spacing)
    figure.align_ylabels(axes[:, 0])
    return figure, axes


def _time_sheet(view: _View, heights: Sequence[float], entries: Sequence[_Entry]) -> tuple[Figure, Any]:
    """Panels over time, one below the other, with the flagged samples shaded."""
    figure, axes = _sheet(heights, entries, shades=view.spans)
    for panel in axes[:, 0]:
        _over_time(view, panel, last=panel is axes[-1, 0])
    return figure, axes[:, 0]


def _over_time(view: _View, panel: Any, last: bool = True) -> None:
    for _, colour, stretches in view.spans:
        bars, across = [(start, end - start) for start, end in stretches], panel.get_xaxis_transform()
        panel.broken_barh(bars, (0.0, 1.0), transform=across, color=colour, alpha=0.3, lw=0.0)
    panel.set_xlim(0.0, max(float(view.run.time[-1]), view.run.scenario.dt))
    panel.tick_params(labelbottom=last)
    if last:
        panel.set_xlabel("time (s)")


def _plot(panel: Any, time: Array, values: Array, columns: int = COLUMNS, **style: Any) -> None:
    """A history by its envelope; gaps stay gaps."""
    finite = np.isfinite(values)
    if not finite.any():
        return
    filled = values if finite.all() else np.where(finite, values, float(values[finite][0]))
    keep = analysis.envelope(len(values), filled, columns)
    panel.plot(time[keep], values[keep], **style)


def _curve(panel: Any, x: Array, y: Array, **style: Any) -> None:
    """A curve y(x) without the points that nobody can tell apart."""
    usable = np.isfinite(x) & np.isfinite(y)
    x, y = x[usable], y[usable]
    keep = analysis.thinned(x, y, CELLS)
    panel.plot(x[keep], y[keep], rasterized=len(keep) > RASTER, **style)


def _at_zero(panel: Any) -> None:
    panel.axhline(0.0, color="#999999", lw=0.6, zorder=1.5)


def _legend_of_axes(view: _View) -> list[_Entry]:
    return [(name, colour, line) for _, name, colour, line in view.axes] if len(view.axes) > 1 else []


def _displacements(view: _View) -> _Drawing:
    """Fig. 7(a): target and measured displacement, and the strongest seconds of them."""
    run, running = view.run, view.running
    target = run.target[running.samples]
    zoom = analysis.strongest(running.time, target, ZOOM)
    named = len(view.axes) > 1
    entries: list[_Entry] = [("target", BAND, "-")]
    entries += [(f"measured {name}" if named else "measured", c, line) for _, name, c, line in view.axes]
    entries.append(("command", INK, DASHES))
    heights = [2.3] if not named else [1.35] * len(view.axes)
    figure, axes = _sheet(heights, entries, widths=(2.1, 1.0), shades=view.spans, between=0.13)
    inside = (run.time >= zoom[0]) & (run.time <= zoom[1])
    for axis, name, colour, line in view.axes:
        last = axis == len(view.axes) - 1
        for panel, shown in zip(axes[axis], (np.arange(len(run.time)), np.flatnonzero(inside)), strict=True):
            _over_time(view, panel, last)
            time = run.time[shown]
            if panel is axes[axis, 1]:
                _plot(panel, time, run.command[shown, axis] * MM, COLUMNS // 3, color=INK, lw=0.7, ls=DASHES)
            _plot(panel, time, run.target[shown, axis] * MM, COLUMNS * 2 // 3, color=BAND, lw=BAND_WIDTH)
            measured = run.displacement[shown, axis] * MM
            _plot(panel, time, measured, COLUMNS * 2 // 3, color=colour, ls=line, lw=0.9)
        axes[axis, 0].axvspan(*zoom, facecolor="none", edgecolor=FAINT, lw=0.8)
        axes[axis, 0].set_ylabel(f"{name}\ndisplacement (mm)" if named else "displacement (mm)")
        axes[axis, 1].set_xlim(*zoom)
    worst = _largest(running.control_error)
    title = f"Displacement: measured follows target within {_quantity(worst, MM, 'mm')}"
    caption = (
        f"Left: the whole test. Right: the {zoom[1] - zoom[0]:.2g}\u00a0s in which the target moved most "
        "(framed on the left), with the command that the compensator made of it."
    )
    return title, caption, figure


def _control_error(view: _View) -> _Drawing:
    """Fig. 7(b)."""
    running = view.running
    figure, (panel,) = _time_sheet(view, [1.7], _legend_of_axes(view))
    for axis, _, colour, line in view.axes:
        _plot(panel, running.time, running.control_error[:, axis] * MM, color=colour, ls=line, lw=0.9)
    _at_zero(panel)
    panel.set_ylabel("control error (mm)")
    row, axis = divmod(int(np.argmax(np.abs(running.control_error))), len(view.axes))
    where = f" ({view.axes[axis][1]})" if len(view.axes) > 1 else ""
    worst = _quantity(abs(float(running.control_error[row, axis])), MM, "mm")
    title = f"Control error: largest {worst} at {running.time[row]:.3g}\u00a0s{where}"
    return title, "Target minus measured displacement.", figure


def _tracking_indicator(view: _View) -> _Drawing:
    """Fig. 7(c)."""
    running = view.running
    figure, (panel,) = _time_sheet(view, [1.7], _legend_of_axes(view))
    for axis, _, colour, line in view.axes:
        _plot(panel, running.time, running.tracking_indicator[:, axis] * MM2, color=colour, ls=line, lw=1.1)
    _at_zero(panel)
    panel.set_ylabel("tracking indicator (mm²)")
    most = _quantity(_largest(running.tracking_indicator), MM2, "mm²")
    ends = ", ".join(rounded(float(value), MM2) for value in running.tracking_indicator[-1])
    title = f"Tracking indicator: magnitude up to {most}, {ends}\u00a0mm² at the end"
    caption = "Rises while the actuator lags its target, falls while it leads, level while they agree."
    return title, caption, figure


def _compensator(view: _View) -> _Drawing | None:
    """Fig. 7(d): what the compensator has learned."""
    found = analysis.states(view.run)
    found.pop("tracking_indicator", None)  # has its own figure
    found = {name: rows for name, rows in found.items() if any(np.isfinite(v).any() for v in rows.values())}
    if not found:
        return None
    order = sorted(found, key=lambda name: name != "delta_alpha")
    figure, panels = _time_sheet(view, [1.3 if len(found) > 1 else 1.7] * len(found), _legend_of_axes(view))
    colours = {name: (colour, line) for _, name, colour, line in view.axes}
    for panel, quantity in zip(panels, order, strict=True):
        symbol, unit, factor = STATE_UNITS.get(quantity, (quantity, "SI", 1.0))
        for name, values in found[quantity].items():
            colour, line = colours.get(name, (INK, "-"))
            _plot(panel, view.run.time, values * factor, color=colour, ls=line, lw=1.1)
        panel.set_ylabel(f"{symbol} ({unit})")
    adapted = found.get("delta_alpha")
    if adapted is None:
        return "Compensator: its inner quantities", f"Recorded states of {_kind(view)}.", figure
    ends = ", ".join(rounded(float(v[np.isfinite(v)][-1])) for v in adapted.values() if np.isfinite(v).any())
    caption = (
        "Δα is added to the estimated delay constant: α = α<sub>es</sub> + Δα "
        "(Chen &amp; Ricles 2010, Eqs. 6–7). The delay that is compensated is (α − 1) samples."
    )
    return f"Compensator: Δα ends at {ends} samples", caption, figure


def _kind(view: _View) -> str:
    return escape(str(getattr(type(view.run.scenario.compensator), "type_name", "the compensator")))


def _hysteresis(view: _View) -> _Drawing:
    """Fig. 8: restoring force over displacement of both substructures."""
    run = view.run
    numerical = run.scenario.structure is not None and len(run.restoring_force) > 1
    dofs = run.scenario.dof_names()
    several = max(len(dofs) if numerical else 1, len(view.axes)) > 1
    entries = _legend_of_axes(view) if several else []
    figure, axes = _sheet([2.7], entries, widths=(1.0,) * (1 + numerical), between=0.24, titled=True)
    panel = axes[0, -1]
    for axis, _, colour, line in view.axes:
        shown = run.displacement[:, axis] * MM, run.force[:, axis] * KN
        _curve(panel, *shown, color=colour, ls=line, lw=0.8)
    panel.set_title("experimental substructure (measured)")
    if numerical:
        panel = axes[0, 0]
        moved = run.dof_displacement[: len(run.restoring_force)]
        for dof, name, colour, line in _styled(dofs):
            label = name if len(dofs) > 1 else None
            shown = moved[:, dof] * MM, run.restoring_force[:, dof] * KN
            _curve(panel, *shown, color=colour, ls=line, lw=0.8, label=label)
        panel.set_title("numerical substructure (computed)")
        if len(dofs) > 1:
            panel.legend(fontsize=7.0, loc="upper left")
    for panel in axes[0]:
        panel.margins(x=0.04)
        panel.set_xlabel("displacement (mm)")
        panel.set_ylabel("restoring force (kN)")
    most = _largest(run.force)
    title = f"Hysteresis: the specimen carried up to {_quantity(most, KN, 'kN')}"
    caption = "The area inside the loops is energy dissipated."
    if numerical:
        part = _quantity(_largest(run.restoring_force), KN, "kN")
        caption += f" The numerical substructure (without its viscous damping) carried up to {part}."
    return title, caption, figure


def _energy(view: _View) -> _Drawing:
    """Fig. 11 in the running form, and where the input energy went."""
    run, running = view.run, view.running
    parts = analysis.energies(run, running)
    styled = {
        "input": (INK, "-"),
        "numerical substructure": (PALETTE[0], "-"),
        "experimental substructure": (PALETTE[1], "-"),
        "viscous damping": (PALETTE[2], LINES[1]),
        "kinetic": (PALETTE[4], "-"),
    }
    entries = [(name, *style) for name, style in styled.items() if name in parts]
    relative = bool(np.isfinite(running.energy_error_percent).any())
    figure, (top, below) = _time_sheet(view, [1.4, 1.9], entries)
    if relative:
        _plot(top, running.time, running.energy_error_percent, color=PALETTE[3], lw=1.1)
        top.set_ylabel("HSEM, running (%)")
        top.set_ylim(*_sensible(view))
    else:
        unit, factor = _joules(_largest(running.energy_error))
        _plot(top, running.time, running.energy_error * factor, color=PALETTE[3], lw=1.1)
        top.set_ylabel(f"energy error ({unit})")
    _at_zero(top)
    unit, factor = _joules(max((_largest(values) for values in parts.values()), default=0.0))
    for name, colour, line in entries:
        values = parts[name]
        _plot(below, run.step_time[: len(values)], values * factor, color=colour, ls=line, lw=1.1)
    below.set_ylabel(f"energy ({unit})")
    return _energy_words(view, relative, "input" in parts), _energy_caption(view, relative), figure


def _energy_words(view: _View, relative: bool, shaken: bool) -> str:
    running = view.running
    end = float(running.energy_error[-1])
    unit, factor = _joules(abs(end))
    error = f"the tracking error fed in {_quantity(end, factor, unit)}"
    given = float(running.input_energy[-1]) if len(running.input_energy) else math.nan
    if not (relative and shaken and math.isfinite(given)):
        return f"Energy: {error}"
    unit, factor = _joules(abs(given))
    return f"Energy: {error} of {_quantity(given, factor, unit, 3)} input"


def _energy_caption(view: _View, relative: bool) -> str:
    if not relative:
        return (
            "Top: work of the measured force on the difference of measured and target displacement; without "
            "input energy there is nothing to relate it to. Below: work absorbed by the specimen."
        )
    elastic = view.running.elastic_energy
    unit, factor = _joules(elastic)
    denominator = (
        f"|input energy| + strain energy at yield ({_quantity(elastic, factor, unit, 3)})"
        if elastic
        else "|input energy| (linear: no strain energy at yield to add, so the first seconds say little)"
    )
    return (
        "Top: running form of the hybrid simulation energy monitor, energy error / ("
        f"{denominator}), as the test was monitored; positive: lag, energy fed in. The HSEM of the table "
        "is the last energy error by the input energy alone. Below: where the input energy went."
    )


def _sensible(view: _View) -> tuple[float, float]:
    """Limits of the running HSEM: those of the samples with enough energy to divide by."""
    running = view.running
    percent = running.energy_error_percent
    if running.elastic_energy == 0.0 and len(running.input_energy):
        step = np.minimum(running.samples // view.run.scenario.substeps, len(running.input_energy) - 1)
        energy = np.abs(running.input_energy[step])
        percent = percent[energy >= 0.05 * energy.max()]
    percent = percent[np.isfinite(percent)]
    low, high = float(percent.min(initial=0.0)), float(percent.max(initial=0.0))
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def _joules(size: float) -> tuple[str, float]:
    return ("kJ", 1e-3) if size >= 1e3 else ("J", 1.0)


def _synchronisation(view: _View) -> _Drawing:
    """Synchronisation plot (Mercan 2007), and the same with the diagonal taken off and magnified."""
    run, running = view.run, view.running
    target, measured = run.target[running.samples] * MM, run.displacement[running.samples] * MM
    figure, axes = _sheet([2.7], _legend_of_axes(view), widths=(1.0, 1.0), between=0.24)
    left, right = axes[0]
    for axis, _, colour, line in view.axes:
        _curve(left, target[:, axis], measured[:, axis], color=colour, ls=line, lw=0.8)
        _curve(right, target[:, axis], running.control_error[:, axis] * MM, color=colour, ls=line, lw=0.7)
    ends = [min(target.min(), measured.min()), max(target.max(), measured.max())]
    left.plot(ends, ends, color=FAINT, lw=0.6, zorder=1.5)
    _at_zero(right)
    left.set_ylabel("measured (mm)")
    right.set_ylabel("target − measured (mm)")
    for panel in axes[0]:
        panel.set_xlabel("target (mm)")
        panel.margins(x=0.04)
    caption = (
        "Left: a perfect actuator draws the diagonal; a lag opens it to an ellipse, too small an amplitude "
        "turns it. Right: the same with the diagonal taken off and magnified."
    )
    return "Synchronisation: measured over target", caption, figure


def _response(view: _View) -> _Drawing | None:
    """Ground motion and response of the degrees of freedom."""
    run = view.run
    ground = analysis.ground_acceleration(run)
    if len(ground) < 2:
        return None
    dofs = _styled(run.scenario.dof_names())
    entries = [(name, colour, line) for _, name, colour, line in dofs] if len(dofs) > 1 else []
    figure, panels = _time_sheet(view, [1.0, 1.35, 1.35], entries)
    _plot(panels[0], run.step_time[: len(ground)], ground, color=INK, lw=0.7)
    total = analysis.absolute_acceleration(run)
    for dof, _, colour, line in dofs:
        _plot(panels[1], run.step_time, run.dof_displacement[:, dof] * MM, color=colour, ls=line)
        _plot(panels[2], run.step_time[: len(total)], total[:, dof], color=colour, ls=line, lw=0.9)
    for panel, label in zip(panels, ("ground (m/s²)", "displ. (mm)", "accel. (m/s²)"), strict=True):
        _at_zero(panel)
        panel.set_ylabel(label)
    peak, moved = _largest(ground), _largest(run.dof_displacement)
    title = (
        f"Response: {_quantity(peak, 1.0, 'm/s²', 3)} of ground acceleration moved the structure by "
        f"{_quantity(moved, MM, 'mm', 3)}"
    )
    caption = "From the top: acceleration of the ground, displacement relative to it, absolute acceleration."
    return title, caption, figure


_FIGURES: tuple[Callable[[_View], _Drawing | None], ...] = (
    _displacements,
    _control_error,
    _tracking_indicator,
    _compensator,
    _hysteresis,
    _energy,
    _synchronisation,
    _response,
)


# --- timing -----------------------------------------------------------------------------------------------

_CLOCKS = (
    ("loop", "Computing time of one sample"),
    ("lateness", "Lateness of a tick"),
)
_PERCENTILES = (("median", "median_s"), ("99 %", "p99_s"), ("99.9 %", "p999_s"), ("largest", "max_s"))


def _timing(run: Run) -> str:
    counts = _counts(run)
    known = [(title, clock) for key, title in _CLOCKS if (clock := _clock(run, key))]
    rows = "".join(
        f"<tr><th>{title}</th>"
        + "".join(f'<td class="n">{rounded(clock.get(key), US)}</td>' for _, key in _PERCENTILES)
        + "<td>µs</td></tr>"
        for title, clock in known
    )
    heads = "".join(f'<th class="n">{name}</th>' for name, _ in _PERCENTILES)
    times = (
        f'<div class="wide"><table><thead><tr><th></th>{heads}<th>Unit</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        if rows
        else "<p>No timing was recorded.</p>"
    )
    period = f"<p>The servo period is {_quantity(run.scenario.dt, US, 'µs', 3)}. {counts}</p>"
    with matplotlib.rc_context(STYLE):
        drawing = _histograms(run)
        figure = "" if drawing is None else _plain_figure(drawing)
    return f"<section><h2>Timing</h2>{period}{times}{figure}</section>"


def _clock(run: Run, key: str) -> Mapping[str, Any]:
    """Statistics of a clock; empty if nothing was measured."""
    clock = run.timing.get(key)
    if not isinstance(clock, Mapping):
        return {}
    return clock if any(_number(clock.get(name)) is not None for _, name in _PERCENTILES) else {}


def _plain_figure(drawing: Figure) -> str:
    caption = "How often (logarithmic) a duration occurred."
    svg = _svg(drawing, "Timing histograms")
    return f'<figure><div class="wide">{svg}</div><figcaption>{caption}</figcaption></figure>'


def _counts(run: Run) -> str:
    """Missed and bridged samples in words."""
    marked = {flag: int(((run.flags & flag) != 0).sum()) for flag, _, _ in SHADES}
    counts = {"bridged": marked[FLAG_BRIDGED], "slipped": marked[FLAG_SLIPPED]}
    counts |= {"with a saturated sensor": marked[FLAG_SATURATED], "in the safe stop": marked[FLAG_TRIPPED]}
    missed = _number(run.timing.get("missed"))
    words = [f"{number} {what}" for what, number in counts.items() if number]
    clean = "No sample was bridged, slipped or saturated."
    said = f"Flagged samples: {', '.join(words)}." if words else clean
    return said + (f" Missed ticks: {missed:.0f}." if missed is not None else "")


def _histograms(run: Run) -> Figure | None:
    shown = []
    for key, title in _CLOCKS:
        edges, counts = _bars(run.timing.get(f"{key}_histogram"))
        if len(counts):
            shown.append((title, edges, counts, _clock(run, key)))
    if not shown:
        return None
    entries = [("99.9 %", PALETTE[1], LINES[1]), ("servo period", INK, "-")]
    figure, axes = _sheet([1.9], entries, widths=(1.0,) * len(shown), between=0.2, titled=True)
    for panel, (title, edges, counts, clock) in zip(axes[0], shown, strict=True):
        heights = np.where(counts > 0.0, counts, np.nan)
        panel.stairs(heights, edges * US, baseline=0.5, fill=True, color=PALETTE[0], alpha=0.8)
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(_plain)
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_ylim(0.5, 2.0 * float(counts.max()))
        if edges[0] > 0.0 and edges[-1] > 5.0 * edges[0]:
            panel.set_xscale("log")
            panel.xaxis.set_major_formatter(_plain)
            panel.xaxis.set_minor_formatter(NullFormatter())
        slow = _number(clock.get("p999_s"))
        if slow is not None:
            panel.axvline(slow * US, color=PALETTE[1], lw=1.0, ls=LINES[1])
        if edges[-1] > run.scenario.dt:
            panel.axvline(run.scenario.dt * US, color=INK, lw=1.0)
        panel.set_xlabel("µs")
        panel.set_title(title)
    axes[0, 0].set_ylabel("samples")
    return figure


def _plain(value: float, _: int) -> str:
    return f"{value:,.10g}".replace(",", "\u202f")


def _bars(histogram: Any) -> tuple[Array, Array]:
    """Edges (s) and counts of a histogram, without the empty ends; empty if it is not one."""
    nothing = np.zeros(0)
    if not isinstance(histogram, Mapping):
        return nothing, nothing
    edges = np.array(histogram.get("edges_s", ()), dtype=float)
    counts = np.array(histogram.get("counts", ()), dtype=float)
    if edges.ndim != 1 or counts.ndim != 1 or len(edges) != len(counts) + 1 or not np.any(counts > 0.0):
        return nothing, nothing
    filled = np.flatnonzero(counts > 0.0)
    first, last = int(filled[0]), int(filled[-1]) + 1
    edges, counts = edges[first : last + 1].copy(), counts[first:last]
    return (edges, counts) if np.isfinite(edges).all() else (nothing, nothing)


# --- page -------------------------------------------------------------------------------------------------

_CSS = """
:root{--face:"DejaVu Sans",Verdana,"Segoe UI",Helvetica,Arial,sans-serif;
--ink:#1a1a1a;--soft:#5a6068;--line:#dde1e6}
*{box-sizing:border-box}
body{margin:0 auto;max-width:60rem;padding:1.6rem 1.2rem 3rem;color:var(--ink);background:#fff;
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:0;overflow-wrap:anywhere}
h2{font-size:1.2rem;margin:2.4rem 0 .7rem;padding-bottom:.25rem;border-bottom:2px solid var(--ink)}
h3{font-size:1rem;margin:0 0 .35rem;font-weight:600}
.line{display:flex;flex-wrap:wrap;align-items:center;gap:.5rem 1rem;justify-content:space-between}
.badge{padding:.2rem .8rem;border-radius:1rem;color:#fff;font-weight:600;letter-spacing:.02em;
-webkit-print-color-adjust:exact;print-color-adjust:exact}
.badge.good{background:#1a7f37}.badge.bad{background:#b3261e}.badge.unknown{background:#6b7280}
.about{margin:.35rem 0 0;color:var(--soft);overflow-wrap:anywhere}
.reason{margin:.9rem 0 0;padding:.5rem .8rem;border-left:4px solid #6b7280;background:#f4f5f7;
overflow-wrap:anywhere}
.reason.bad{border-color:#b3261e;background:#fdf1f0}
.summary{font-size:1.12rem;margin:1.1rem 0}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(12.5rem,1fr));gap:.6rem 1.4rem;margin:0;
padding:.9rem 0;border-top:1px solid var(--line);border-bottom:1px solid var(--line)}
dt{font-size:.75rem;color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:baseline;padding:.32rem .9rem .32rem 0;
border-bottom:1px solid var(--line)}
tbody th{font-weight:500}thead th{font-size:.8rem;color:var(--soft);font-weight:500}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}td.n{font-weight:600}
td.mid{text-align:center}
.indices tbody th{white-space:nowrap}.why{color:var(--soft);font-size:.82rem;line-height:1.35;min-width:15rem}
figure{margin:0 0 2rem;break-inside:avoid}
figure svg{display:block;width:100%;height:auto;min-width:34rem}
figcaption{color:var(--soft);font-size:.86rem}
.no{display:inline-block;min-width:1.5em;color:var(--soft);font-weight:400}
details{margin:.5rem 0}summary{cursor:pointer}
pre{overflow-x:auto;font-size:.8rem;line-height:1.4;background:#f6f7f9;padding:.8rem;border-radius:.3rem}
footer{margin-top:2.5rem;color:var(--soft);font-size:.8rem}
@media (max-width:40rem){body{padding:1rem .8rem 2rem}h1{font-size:1.35rem}
.facts{grid-template-columns:repeat(2,1fr)}.indices tbody th{white-space:normal}}
@media print{@page{margin:14mm}body{max-width:none;padding:0;font-size:9.5pt}.wide{overflow:visible}
.summary{font-size:1.05em;margin:.7rem 0}.facts{gap:.3rem 1rem;padding:.5rem 0}th,td{padding-block:.2rem}
h2{margin-top:1.3rem}figure{margin-bottom:1.2rem}
figure svg{min-width:0}h2,h3{break-after:avoid}tr{break-inside:avoid}}
""".strip()

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
{body}
<footer>Written by rths_nodes {version}.</footer>
</body>
</html>
"""
