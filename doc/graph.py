# SPDX-License-Identifier: Apache-2.0
"""Write the graph of nodes and topics, doc/ros/graph.md: python doc/graph.py, then python doc/draw.py MERMAID_JS

It comes from the table of topics (``rths_nodes/ros/names.py``) and the constants by which nodes publish.
"""

from __future__ import annotations

import re
from pathlib import Path

from rths_nodes.ros import names
from rths_nodes.ros.names import DIAGNOSTICS, NODES, TOPICS
from rths_nodes.ros.nodes import after_measurement, base, monitor, observers

PAGE = Path(__file__).resolve().parent / "ros" / "graph.md"
BLOCK = re.compile(r"(<!-- made by doc/graph.py -->\n```mermaid\n)(.*?)(```)", re.S)
WATCHER, EVERY = "whoever wants it", "each node"
MOST = 4
"""Number of publishers or subscribers from which they are drawn as one box."""
BY_NUMBER = "one of each {}"
OF_TEST = f"{monitor.RATE:g} per s of test"
RATES = {
    "target": BY_NUMBER.format("step"),
    **dict.fromkeys(("command", "measurement", "true_state", "compensator_state"), BY_NUMBER.format("sample")),
    **dict.fromkeys(("sync_status", *names.JOINTS), OF_TEST),
    "test_state": "when it changes",
    "node_status": "when it changes",
    "trip": "once",
    "summary": "at the end",
    "progress": f"every {observers.PROGRESS_SAMPLES} samples, in real time every heartbeat",
    "live": f"at most {1e9 / monitor.INTERVAL_NS:g} per s",
    "live_curves": "at the beginning",
    names.CLOCK.name: f"every {1e3 * after_measurement.PERIOD_S:g} ms of test, in lockstep, on request",
    DIAGNOSTICS.name: f"{1e9 / base.PERIOD_NS:g} per s",
}
"""Rate of publication on each topic; ``step`` and ``sample`` refer to the scenario."""


def graph() -> str:
    """Return the graph as a mermaid flowchart: nodes of a launch, topics with their rates, and subscribers.

    Topics with the same ends share a box. Streams are thick, latched topics dotted. Topics between machines, and
    topics of some tests only, are omitted.
    """
    boxes: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    rows = [row for row in TOPICS.values() if row.name != names.FORMER_TRIP]
    for row in (*rows, names.TRIP_REQUESTS[0], names.CLOCK, DIAGNOSTICS):
        arrow = "==>" if row.stream else "-.->" if row.latched else "-->"
        if not (row.apart or row.section):
            ends = arrow, _among(row.publishers), _among(row.subscribers)
            boxes.setdefault(ends, []).append(f"{row.name}: {RATES[row.name]}")
    lines = [
        "flowchart LR",
        *(f"    {node}[{node}]" for node in NODES),
        f"    all[{EVERY}]",
        f"    watcher[{WATCHER}]",
    ]
    for number, ((arrow, publishers, subscribers), topics) in enumerate(boxes.items()):
        lines.append(f'    t{number}(["{"<br>".join(topics)}"])')
        lines += [f"    {node} {arrow} t{number}" for node in publishers]
        lines += [f"    t{number} {arrow} {node}" for node in subscribers]
    return "\n".join(lines) + "\n"


def _among(roles: tuple[str, ...]) -> tuple[str, ...]:
    """Return the boxes of ``roles``: one box for most of the nodes, and one for foreign nodes."""
    nodes = tuple(role for role in roles if role in NODES)
    return ("all",) if len(nodes) >= MOST else nodes or ("watcher",)


def main() -> None:
    """Put the graph into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda match: match[1] + graph() + match[3], page), encoding="utf-8")


if __name__ == "__main__":
    main()
