"""The tables of the report: the indices of the axes and of the test, and the timing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rths_nodes.analysis import histories
from rths_nodes.analysis.response_errors import response_errors
from rths_nodes.analysis.units import HOPS, MM, MM2, MS, US, clocks, number, quantity, rounded
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SATURATED, FLAG_SLIPPED, FLAG_SOFT_START, FLAG_TRIPPED
from rths_nodes.recording.run import Run

_AXIS_INDICES = (
    (
        "Largest control error",
        "max_error_m",
        MM,
        "mm",
        "max |target − measured| (Chen &amp; Ricles 2010, Table 2)",
    ),
    (
        "Largest control error, relative (J3)",
        "max_error_percent",
        1.0,
        "%",
        "the same, as a share of the largest target (Chen &amp; Ricles 2010, Table 2; J3 of Wang et al.)",
    ),
    (
        "Error norm (J2)",
        "error_norm_percent",
        1.0,
        "%",
        "RMS of the control error as a share of the RMS of the target (Chen &amp; Ricles 2010, Eq. 15; J2 of "
        "Wang et al.)",
    ),
    (
        "Delay (J1)",
        "delay_s",
        MS,
        "ms",
        "shift at which target and measurement are most alike (peak of the cross-correlation; J1 of Wang et "
        "al.); positive: late",
    ),
    (
        "Tracking indicator at the end",
        "tracking_indicator_m2",
        MM2,
        "mm²",
        "TI = (A − TA)/2, area enclosed in the synchronisation plot (Chen &amp; Ricles 2010, Eqs. 8–9b); "
        "grows while the actuator lags",
    ),
    (
        "Amplitude ratio (FEI)",
        "fei_amplitude",
        1.0,
        "",
        "frequency evaluation index of the whole record: measured over target, mean over the spectrum weighted "
        "by the power of the target (Guo et al. 2014)",
    ),
    ("Delay (FEI)", "fei_delay_s", MS, "ms", "the same index: its phase at the equivalent frequency"),
    (
        "Equivalent frequency (FEI)",
        "fei_frequency_hz",
        1.0,
        "Hz",
        "mean frequency of the target, weighted by its power",
    ),
)
"""Of each axis: title, key in the metrics, factor, unit and meaning (HTML). Below: of the whole test."""
_TEST_INDICES = (
    (
        "Energy error HSEM",
        "hsem_percent",
        1.0,
        "%",
        "energy that the tracking error fed in, as a share of the input energy, at the end "
        "(Mosqueda et al. 2007; Chen &amp; Ricles 2010, Fig. 11); positive: lag",
    ),
    ("Largest displacement", "max_displacement_m", MM, "mm", "of the degree of freedom that moved most"),
    ("Smallest displacement", "min_displacement_m", MM, "mm", "of the same degree of freedom"),
    ("Displacement at the end", "end_displacement_m", MM, "mm", "of the same; what remains after yielding"),
)
_TRUE = (
    "<p>Measured: what the sensors saw, with their noise and resolution; a laboratory has no more. True: the "
    "displacement itself, which only a simulator knows.</p>"
)
_PERCENTILES = (
    ("mean", "mean_s"),
    ("median", "median_s"),
    ("99 %", "p99_s"),
    ("99.9 %", "p999_s"),
    ("largest", "max_s"),
)
_COUNTED = (("Missed ticks", "missed"), ("Commands that came too late to be sent", "late_commands"))
_FLAGGED = (
    (FLAG_BRIDGED, "bridged"),
    (FLAG_SLIPPED, "slipped"),
    (FLAG_SATURATED, "with a saturated sensor"),
    (FLAG_SOFT_START, "in the soft start"),
    (FLAG_TRIPPED, "in the safe stop"),
)


def indices(run: Run) -> str:
    """One column per axis, two where sensors hide the true state; what belongs to the whole test stands across."""
    columns = _columns(run)
    rows = []
    for title, key, factor, unit, meaning in _AXIS_INDICES:
        values = [rounded(column.get(key), factor) for column in columns.values()]
        rows.append(_row(title, values, _explained(unit, meaning)))
    for title, key, factor, unit, meaning in _TEST_INDICES:
        value = rounded(run.metrics.get(key), factor)
        rows.append(_row(title, [value], _explained(unit, meaning), span=len(columns)))
    last = "<th>Unit</th><th>What it is</th>"
    table = _table(' class="indices"', "Index", [escape(name) for name in columns], last, rows)
    return table + (_TRUE if len(columns) > len(run.axes) else "")


def _columns(run: Run) -> dict[str, Mapping[str, Any]]:
    """The indices by head of the column: those of the test, and those of the true displacement if that differs."""
    recorded: Mapping[str, Any] = run.metrics.get("axes") or {}
    offline = histories.indices(run, run.displacement)
    measured: dict[str, Mapping[str, Any]] = {
        name: {key: value for key, value in offline.get(name, {}).items() if key.startswith("fei")}
        | dict(recorded.get(name, {}))
        for name in run.axes
    }
    if not histories.true_is_known(run):
        return measured
    true = histories.indices(run, run.true_displacement)
    both = (("measured", measured), ("true", true))
    return {f"{name} {kind}": rows[name] for name in run.axes for kind, rows in both}


def response(run: Run) -> str:
    """Errors of the response against the whole structure in one piece: one column per degree of freedom."""
    errors = response_errors(run)
    meaning = (
        "RMS of the difference as a share of the RMS of the whole structure, computed in one piece without "
        "actuators (Phillips &amp; Spencer 2012, Table 3.1)"
    )
    rows = [
        _row(title, [rounded(row[key]) for row in errors.values()], _explained("%", words))
        for title, key, words in (
            ("Displacement", "displacement", meaning),
            ("Absolute acceleration", "acceleration", "the same, relative to the ground plus that of the ground"),
        )
    ]
    return _table(
        ' class="indices"', "Error of", [escape(dof) for dof in errors], "<th>Unit</th><th>What it is</th>", rows
    )


def timing(run: Run) -> str:
    """Percentiles of the durations, below the period and the number of flagged samples."""
    timed = [(title, run.timing.get(key, {})) for key, title in clocks(run.information.get("host", ""))]
    hops = run.timing.get("hops", {})
    timed[1:1] = [(title, hops.get(key, {})) for key, title in HOPS]
    rows = [
        _row(title, [rounded(clock.get(key), US) for _, key in _PERCENTILES], "<td>µs</td>")
        for title, clock in timed
        if any(number(clock.get(key)) is not None for _, key in _PERCENTILES)
    ]
    heads = [name for name, _ in _PERCENTILES]
    times = _table("", "", heads, "<th>Unit</th>", rows) if rows else "<p>No timing was recorded.</p>"
    return f"<p>The servo period is {quantity(run.scenario.dt, US, 'µs', 3)}. {_counts(run)}</p>{times}"


def _counts(run: Run) -> str:
    """Missed and flagged samples in words."""
    words = [f"{n} {what}" for flag, what in _FLAGGED if (n := int(((run.flags & flag) != 0).sum()))]
    clean = "No sample was bridged, slipped or saturated."
    said = f"Flagged samples: {', '.join(words)}." if words else clean
    counts = ((key, number(run.timing.get(name))) for key, name in _COUNTED)
    return " ".join([said, *(f"{title}: {count:.0f}." for title, count in counts if count is not None)])


def _table(kind: str, corner: str, heads: Sequence[str], last: str, rows: Sequence[str]) -> str:
    """A table of numbers; ``last`` are the heads of the columns of words after them."""
    columns = "".join(f'<th class="n">{head}</th>' for head in heads)
    return (
        f'<div class="wide"><table{kind}><thead><tr><th>{corner}</th>{columns}{last}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(title: str, values: Sequence[str], last: str, span: int = 1) -> str:
    start = f'<td class="n mid" colspan="{span}">' if span > 1 else '<td class="n">'
    cells = "".join(f"{start}{value}</td>" for value in values)
    return f"<tr><th>{title}</th>{cells}{last}</tr>"


def _explained(unit: str, meaning: str) -> str:
    return f'<td>{unit}</td><td class="why">{meaning}</td>'
