# SPDX-License-Identifier: Apache-2.0
"""Draw the results of benchmarks/latency.py: python benchmarks/figure.py LATENCY.json FIGURE.png"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"composed": "#0072b2", "processes": "#d55e00"}
MARKERS = {1: "o", 3: "s", 8: "^"}
LINES = {
    "none": (":", "none"),
    "monitor": ("-.", "left"),
    "recorder": ("--", "right"),
    "both": ("-", "full"),
    "apart": ("-", "top"),
}
"""Line style and marker fill for each set of observers."""
LEAST = 1e-3
"""Smallest percentage of missed ticks on the logarithmic scale; also drawn for none."""
US = 1e6


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw missed ticks, lateness and loop time over the servo rate, each with its floor, to the file ``path``."""
    chart, panels = plt.subplots(1, 3, figsize=(13.0, 4.6), constrained_layout=True)
    missed, late, loop = panels
    series: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for row in result["runs"]:
        series.setdefault((row["host"], row["axes"], row["observers"]), []).append(row)
    for (host, axes, observers), rows in series.items():
        ls, fill = LINES[observers]
        style = {"color": COLOURS[host], "marker": MARKERS.get(axes, "x"), "ls": ls, "fillstyle": fill, "lw": 1.2}
        label = f"{host}, {axes} {'axis' if axes == 1 else 'axes'}, observers: {observers}"
        rates = [row["rate"] for row in rows]
        missed.plot(rates, [max(100.0 * row["missed_share"], LEAST) for row in rows], label=label, **style)
        late.plot(rates, [US * row["timing"]["lateness"]["p99_s"] for row in rows], **style)
        loop.plot(rates, [US * row["timing"]["loop"]["median_s"] for row in rows], **style)
        slow = [US * row["timing"]["loop"]["p999_s"] for row in rows]
        loop.plot(rates, slow, **(style | {"lw": 0.5, "ms": 3.0}))
    _floors(result["runs"], missed, late, loop)
    titles = (
        (f"missed ticks ({LEAST:g} %: none)", "%"),
        ("lateness, p99", "µs"),
        ("loop: median; small: p99.9", "µs"),
    )
    for panel, (title, unit) in zip(panels, titles, strict=True):
        panel.set(title=title, ylabel=unit, xlabel="servo rate, Hz", xscale="log", yscale="log")
        panel.grid(alpha=0.3)
    rates = sorted({row["rate"] for row in result["runs"]})
    for panel in panels:
        panel.set_xticks(rates, [f"{rate:g}" for rate in rates])
        panel.minorticks_off()
    legend = chart.legend(loc="lower center", ncols=3, fontsize=8)  # "outside" needs matplotlib 3.7
    below = 0.01 + legend.get_window_extent().height / chart.bbox.height
    chart.get_layout_engine().set(rect=(0.0, below, 1.0, 1.0 - below))
    chart.savefig(path, dpi=130)
    plt.close(chart)


def _floors(runs: list[dict[str, Any]], missed: Any, late: Any, loop: Any) -> None:
    """Draw the floors of all runs, and the servo period, beyond which a loop misses its tick."""
    style = {"color": "0.35", "ls": "none", "marker": "_", "ms": 12, "zorder": 1}
    rates, floors = zip(*((row["rate"], floor) for row in runs for floor in row["floors"]), strict=True)
    shares = [max(100.0 * floor["paced"]["missed_share"], LEAST) for floor in floors]
    missed.plot(rates, shares, label="floor: bare paced loop; ping-pong", **style)
    late.plot(rates, [US * floor["paced"]["lateness"]["p99_s"] for floor in floors], **style)
    loop.plot(rates, [US * floor["ping_pong"]["median_s"] for floor in floors], **style)
    periods = sorted({row["rate"] for row in runs})
    loop.plot(periods, [US / rate for rate in periods], color="k", marker="_", ms=12, lw=0.8, label="servo period")


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
