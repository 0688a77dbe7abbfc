"""``rths run``: a scenario on a host."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from rths_nodes.analysis.units import MM, MM2, MS, duration, shown
from rths_nodes.app import hosts
from rths_nodes.app.commands import arguments, report, terminal
from rths_nodes.core.durations import trimmed
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario.axis_layout import ACTUATOR_NODES
from rths_nodes.ros.names import NAMESPACE, OBSERVERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    arguments.add_scenario(parser)
    parser.add_argument("--host", choices=hosts.HOSTS, default="embedded", help="default: %(default)s")
    parser.add_argument("--pace", choices=hosts.PACES, default="lockstep", help="default: %(default)s")
    parser.add_argument(
        "--actuator-nodes",
        choices=ACTUATOR_NODES,
        default="one",
        help="one actuator node, or one more per axis for axes that are not coupled; default: %(default)s",
    )
    parser.add_argument(
        "--apart",
        action="append",
        choices=OBSERVERS,
        default=[],
        help="with --host composed: a node that has a process of its own all the same; may be repeated",
    )
    parser.add_argument(
        "--namespace",
        default=NAMESPACE,
        metavar="NAME",
        help="of the rig's nodes and topics; two rigs on one machine need two; default: %(default)s",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--record", metavar="DIR", help="recording; by default in runs/, embedded: none")
    where.add_argument("--no-record", action="store_true", help="do not record")
    parser.add_argument("--report", metavar="FILE", help="write a report (HTML)")
    arguments.add_reference(parser)
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND@TIME[:ARGUMENTS]",
        help="something that goes wrong on purpose, e.g. delay@2:target,3; may be repeated",
    )
    arguments.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Run the scenario; exit code 0 finished, 1 failed, 2 refused, 3 tripped, 130 interrupted."""
    if options.reference and not options.report:
        raise ConfigError("--reference: belongs into a report; give --report FILE")
    if options.report:
        terminal.check_writable(Path(options.report))
    loaded = arguments.scenario(options)
    record = options.record
    if record is None and options.host != "embedded" and not options.no_record:
        record = str(Path("runs") / loaded.run_id())
    with terminal.interruptible() as interrupted, terminal.progress(loaded.name) as progress:
        done = hosts.run(
            loaded,
            host=options.host,
            pace=options.pace,
            actuator_nodes=options.actuator_nodes,
            apart=tuple(dict.fromkeys(options.apart)),
            namespace=options.namespace,
            record=record,
            keep=bool(options.report) and record is None,
            faults=options.fault,
            progress=progress,
            interrupted=interrupted,
        )
    if options.json:
        print(json.dumps(terminal.finite(_json(done)), indent=2))
    else:
        _print(done)
    if options.report:
        page, histories = Path(options.report), done.read()
        with terminal.writing(page, "" if options.json else "report"):
            report.write(histories, page, options.reference)
    return done.exit_code


def _json(done: hosts.RunResult) -> dict[str, Any]:
    return {
        "scenario": done.scenario.name,
        "host": done.host,
        "pace": done.pace,
        "actuator_nodes": done.actuator_nodes,
        "outcome": done.outcome,
        "reason": done.reason,
        "samples": done.samples,
        "duration_s": done.scenario.samples * done.scenario.dt,
        "wall_s": done.wall_s,
        "metrics": done.metrics,
        "compensator": {"type": type(done.scenario.compensator).type_name} | done.compensator,
        "timing": _trimmed(done.timing),
        "messages": done.messages,
        "recording": str(done.recording) if done.recording else None,
        "faults": list(done.faults),
        "notes": done.notes,
    }


def _trimmed(timing: dict[str, Any]) -> dict[str, Any]:
    """All histograms, those of the hops as well, without their empty bins."""
    return {
        name: trimmed(value)
        if name.endswith("histogram")
        else _trimmed(value)
        if isinstance(value, dict)
        else value
        for name, value in timing.items()
    }


def _print(done: hosts.RunResult) -> None:
    from rich.table import Table

    console = terminal.console()
    colour = "green" if done.outcome == "finished" else "red"
    seconds = done.samples * done.scenario.dt
    console.print(
        f"{done.scenario.name}: [bold {colour}]{done.outcome}[/] after {done.samples} samples "
        f"({seconds:.3f} s of test) in {done.wall_s:.1f} s, {done.host}, {done.pace}"
    )
    if done.reason:
        console.print(f"reason: {done.reason}", markup=False)
    if done.faults:
        bridged = done.timing.get("bridged", 0)
        console.print(f"faults: {' '.join(done.faults)}; {bridged:.0f} samples bridged", markup=False)
    if done.metrics:
        grid = Table("axis", "max error", "of max target", "error norm", "delay", "tracking indicator")
        for name, row in done.metrics["axes"].items():
            grid.add_row(
                name,
                shown(row["max_error_m"], MM, "mm"),
                shown(row["max_error_percent"], 1.0, "%"),
                shown(row["error_norm_percent"], 1.0, "%"),
                shown(row["delay_s"], MS, "ms"),
                shown(row["tracking_indicator_m2"], MM2, "mm²"),
            )
        console.print(grid)
        metrics = done.metrics
        console.print(
            f"displacement {shown(metrics['min_displacement_m'], MM, 'mm')} to "
            f"{shown(metrics['max_displacement_m'], MM, 'mm')}, at the end "
            f"{shown(metrics['end_displacement_m'], MM, 'mm')}; energy error (HSEM) "
            f"{shown(metrics['hsem_percent'], 1.0, '%')}"
        )
    loop = done.timing.get("loop")
    if loop:
        median, rare = (duration(loop[key]) for key in ("median_s", "p999_s"))
        text = f"loop {median} median, {rare} p99.9"
        if done.pace == "realtime":
            text += f"; {done.timing['missed']:.0f} ticks missed, {done.timing['bridged']:.0f} bridged"
        console.print(text)
    if hops := done.timing.get("hops"):
        means = {name: duration(hop["mean_s"]) for name, hop in hops.items()}
        console.print(f"means: {', '.join(f'{name} {mean}' for name, mean in means.items())}")
    for note in done.notes:
        console.print(f"note: {note}", markup=False)
    if done.recording:
        console.print(f"recording: {_short(done.recording)}", markup=False, soft_wrap=True)


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
