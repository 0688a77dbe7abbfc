# SPDX-License-Identifier: Apache-2.0
"""Write the graph of nodes and topics into doc/ros.md: python doc/graph.py, then python doc/draw.py MERMAID_JS

It comes from the table of topics (``rths_nodes/ros/names.py``) and the constants by which nodes publish.
"""

from __future__ import annotations

import re
from pathlib import Path

from rths_nodes.ros import names
from rths_nodes.ros.names import DIAGNOSTICS, NODES, TOPICS
from rths_nodes.ros.nodes import after_measurement, base, monitor, observers

PAGE = Path(__file__).resolve().parent / "ros.md"
BLOCK = re.compile(r"(<!-- made by doc/graph.py -->\n```mermaid\n)(.*?)(```)", re.S)
WATCHER, EVERY = "whoever wants it", "each node"
MOST = 4
"""Publishers or subscribers that are drawn as one: of a trip all but the actuator node."""
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
"""How often a node publishes on each topic; ``step`` and ``sample`` are those of the scenario."""


def graph() -> str:
    """Return the graph as a mermaid flowchart: nodes of a launch, topics with their rates, who hears them.

    Topics with the same ends stand in one box. Streams are thick, latched topics dotted. What only nodes on
    different machines say to each other, and what only some tests have, is left out.
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
    for number, ((arrow, speakers, hearers), topics) in enumerate(boxes.items()):
        lines.append(f'    t{number}(["{"<br>".join(topics)}"])')
        lines += [f"    {each} {arrow} t{number}" for each in speakers]
        lines += [f"    t{number} {arrow} {each}" for each in hearers]
    return "\n".join(lines) + "\n"


def _among(roles: tuple[str, ...]) -> tuple[str, ...]:
    """Return the boxes of ``roles``: one for most of the nodes, and for those who are no node of ours."""
    found = tuple(role for role in roles if role in NODES)
    return ("all",) if len(found) >= MOST else found or ("watcher",)


def main() -> None:
    """Put the graph into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda found: found[1] + graph() + found[3], page), encoding="utf-8")


if __name__ == "__main__":
    main()
