"""``rths params``: the parameters of components and sections."""

from __future__ import annotations

import argparse

from rths_nodes.app.commands import terminal
from rths_nodes.core import registry
from rths_nodes.core.errors import unknown
from rths_nodes.core.parameter_table import table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("component", nargs="?")


def run(options: argparse.Namespace) -> int:
    """Show the parameters of one component, or all of them as Markdown."""
    if options.component is None:
        print(page())
        return 0
    from rich import box
    from rich.table import Table

    found = [
        (family, name)
        for family in registry.FAMILIES
        for name in registry.names(family)
        if name == options.component
    ]
    if not found:
        known = {name for family in registry.FAMILIES for name in registry.names(family)}
        raise unknown("component", "component", options.component, known)
    console = terminal.console()
    for family, name in found:
        component = registry.load(family, name)
        summary = (component.__doc__ or "").strip().splitlines()[0]
        console.print(f"[bold]{name}[/] ({family.replace('_', ' ')}): {summary}")
        grid = Table("parameter", "unit", "bound", "default", "meaning", box=box.SIMPLE)
        for row in table(component.Params):
            grid.add_row(row.name, row.unit, row.bound, row.default, row.doc)
        console.print(grid if grid.row_count else "  no parameters\n")
    return 0


def page() -> str:
    """All parameters of all components and sections, as Markdown: doc/parameters.md."""
    from rths_nodes.laboratory.sensors import Sensors
    from rths_nodes.loop.scenario.schema import Axis, Recording, Scenario
    from rths_nodes.loop.supervision.bridges import BridgeParams
    from rths_nodes.loop.supervision.heartbeat import HeartbeatParams
    from rths_nodes.loop.supervision.limits import Limits
    from rths_nodes.loop.supervision.monitor import MonitorParams

    lines = [
        "# Parameters",
        "",
        "Made by `rths params > doc/parameters.md`. SI units unless the name says otherwise.",
    ]
    sections: list[tuple[str, str, type]] = [
        ("A scenario", "The top level of a scenario file.", Scenario),
        ("axes.NAME", "One actuator axis.", Axis),
        ("axes.NAME.limits", "Limits of one axis.", Limits),
        ("axes.NAME.sensors", "Sensors of one axis.", Sensors),
        ("bridge", "What is bridged where a rig cannot wait.", BridgeParams),
        ("heartbeat", "How long the rig goes on without its monitor or its recorder.", HeartbeatParams),
        ("monitor", "Limits on the indices of the whole rig.", MonitorParams),
        ("recording", "What goes into the recording beside the messages.", Recording),
    ]
    for family in registry.FAMILIES:
        for name in registry.names(family):
            component = registry.load(family, name)
            title = f"{family.replace('_', ' ')}: {name}"
            sections.append((title, (component.__doc__ or "").strip().splitlines()[0], component.Params))
    for title, words, cls in sections:
        lines += ["", f"## {title}", "", words]
        rows = table(cls)
        if rows:
            lines += ["", "| parameter | unit | bound | default | meaning |", "|---|---|---|---|---|"]
        for row in rows:
            lines.append(f"| `{row.name}` | {row.unit} | {row.bound} | {row.default} | {row.doc} |")
    return "\n".join(lines)
