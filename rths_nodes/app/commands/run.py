# SPDX-License-Identifier: Apache-2.0
"""``rths run``: run a scenario."""

from __future__ import annotations

import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

from rths_nodes.analysis.units import KN, MM, duration, number, shown
from rths_nodes.app import hosts
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.page.process import page_beside
from rths_nodes.app.results import INDICES, indices
from rths_nodes.app.streams import show_log
from rths_nodes.core.data import Data, flatten
from rths_nodes.core.durations import trimmed
from rths_nodes.core.errors import ConfigError, printable
from rths_nodes.loop.indices.tracking import delay_notes
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.options import COMMAND, COMPOSED, EMBEDDED, EXECUTIVE, OVER_KERNELS
from rths_nodes.loop.options import options as run_options
from rths_nodes.loop.scenario import schema
from rths_nodes.loop.scenario.updating import learning_notes
from rths_nodes.loop.stages.frozen import frozen_notes
from rths_nodes.loop.supervision.levels import level_notes
from rths_nodes.loop.supervision.monitor import corridor_notes
from rths_nodes.loop.timing import pause_notes

LOOK_S = 0.1


def run_arguments(add: arguments.Arguments) -> None:
    where = add.exclusive()
    for name, option in run_options(COMMAND).items():
        (where if name == "--record" else add).option(option)
    where.flags(no_record="do not record; default: the hosts composed and processes record in runs/")
    add("--report FILE", "write a report (HTML)")
    text = (
        "show the running test in the browser (hosts composed and processes); at a terminal, the page stays open "
        "until Ctrl-C"
    )
    add.flags(page=text)
    add.page_port()
    add.reference()
    add.json()


def run_command(options: arguments.Options) -> int:
    if options.reference and not options.report:
        raise ConfigError("--reference: requires --report FILE")
    arguments.check_page_port(options)
    if options.report:
        terminal.check_writable(Path(options.report))
    loaded, chosen = arguments.scenario(options), arguments.chosen(options)
    if options.page:
        chosen["host"] = _host_of_page(chosen["host"])
    if not chosen["record"] and chosen["host"] != EMBEDDED and not options.no_record:
        chosen["run_id"] = loaded.run_id()
        chosen["record"] = Path(terminal.RUNS) / chosen["run_id"]
    show_log()
    keep = bool(options.report) and not chosen["record"]
    shown = ["--port", str(options.page_port)]
    shown += ["--recordings", str(Path(chosen["record"]).parent)] if chosen["record"] else []
    with page_beside(chosen["namespace"], terminal.print_now, shown) if options.page else nullcontext():
        with orderly_stop() as interrupted, terminal.progress(loaded.name) as progress:
            done = hosts.run(
                loaded,
                keep=keep,
                progress=progress,
                starting=progress.starting,
                interrupted=interrupted,
                **chosen,
            )
        _tell(options, done)
        if options.page and sys.stdin.isatty():
            terminal.print_now("the page stays open until Ctrl-C")
            with orderly_stop() as interrupted:
                while not interrupted():
                    time.sleep(LOOK_S)
    return done.exit_code


def _tell(options: arguments.Options, done: hosts.RunResult) -> None:
    terminal.output(options.json, _json(done), _print, done)
    if options.report:
        with terminal.page_of_test(Path(options.report), "" if options.json else "report"):
            from rths_nodes.analysis.report import document

            document.write_report(done.read(), Path(options.report), options.reference)


def _host_of_page(host: str) -> str:
    if host != EMBEDDED:
        return host
    if host is not run_options(COMMAND)["--host"].default:  # a typed value is a different object, even if equal
        raise ConfigError("--page: the embedded host publishes no data for a page; use composed or processes")
    return COMPOSED


def _json(done: hosts.RunResult) -> dict[str, object]:
    return {
        "scenario": done.scenario.name,
        "rig": done.scenario.rig_file.name if done.scenario.rig_file else None,
        "host": done.host,
        "engine": done.engine or None,
        "pace": done.pace,
        "actuator_nodes": done.actuator_nodes,
        "outcome": done.outcome,
        "ending": done.ending,
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


def _trimmed(timing: Data) -> dict[str, object]:
    return {
        name: trimmed(value)
        if name.endswith("histogram")
        else _trimmed(value)
        if isinstance(value, dict)
        else value
        for name, value in timing.items()
    }


def _print(done: hosts.RunResult) -> None:
    from rich.text import Text

    colour = "green" if done.ending == "finished" else "red"
    seconds = done.samples * done.scenario.dt
    rig = f" on {done.scenario.rig_file.name}" if done.scenario.rig_file else ""
    rig += "" if schema.simulation(done.scenario) == schema.SIMULATED else f" ({schema.rig_kind(done.scenario)})"
    how = f"{done.host}, {done.engine}" if done.engine in (*OVER_KERNELS, EXECUTIVE) else done.host
    after = f" after {done.samples} samples ({seconds:.3f} s of test) in {done.wall_s:.1f} s, {how}, {done.pace}"
    title = printable(f"{done.scenario.name}{rig}: ")
    terminal.console().print(Text.assemble(title, (done.ending, f"bold {colour}"), after))
    if done.reason:
        terminal.say(f"reason: {done.reason}")
    if done.faults:
        terminal.say(f"faults: {' '.join(done.faults)}; {done.late.bridged:.0f} samples bridged")
    if done.metrics:
        _print_indices(done.metrics, done.samples)
    loop = done.timing.get("loop")
    if done.engine in OVER_KERNELS and loop:
        terminal.say(f"loop {duration(loop['mean_s'])} per sample (mean)")
    elif loop and done.samples:
        median, rare = (duration(loop[key]) for key in ("median_s", "p999_s"))
        text = f"loop {median} median, {rare} p99.9"
        if done.pace == "realtime":
            text += f"; {done.late.counts}"
        terminal.say(text)
    if port := done.timing.get("port"):
        terminal.say(_of_port(port))
    if (hops := done.timing.get("hops")) and done.samples:
        means = {name: duration(hop["mean_s"]) for name, hop in hops.items()}
        terminal.say(f"mean time per hop: {', '.join(f'{name} {mean}' for name, mean in means.items())}")
    late = delay_notes(done.metrics["axes"], done.scenario.monitor.longest_delay) if done.metrics else []
    notes = (
        *done.notes,
        *frozen_notes(done.metrics),
        *pause_notes(done.timing),
        *level_notes(done.timing),
        *late,
        *corridor_notes(done.metrics, done.scenario.dt),
        *done.scenario.compensator.remarks(flatten(done.compensator, "compensator")),
        *learning_notes(done.integrator, done.scenario),
    )
    for note in notes:
        terminal.say(f"note: {note}")
    if done.recording:
        print(f"recording: {_short(done.recording)}")


def _of_port(counts: dict[str, float]) -> str:
    summary = f"declared transport {counts['transport_declared']:.0f} samples"
    if "transport_median" in counts:
        median, largest = (counts[f"transport_{name}"] for name in ("median", "largest"))
        summary += f", required {median:.0f} (median; largest {largest:.0f})"
    if "answer_median_s" in counts:
        median, largest = (1e3 * counts[f"answer_{name}_s"] for name in ("median", "largest"))
        summary += f", commands sent {median:.3g} ms after states (median; largest {largest:.3g} ms)"
    counted = [name for name in counts if not name.startswith("transport") and not name.endswith("_s")]
    wrong = [f"{counts[name]:.0f} {name}" for name in counted if counts[name]]
    return f"port: {summary}; {', '.join(wrong) or 'nothing lost'}"


def _print_indices(metrics: Data, samples: int) -> None:
    from rich.table import Table

    present = (number(value) is not None for row in metrics["axes"].values() for value in row.values())
    if samples < 1 or not any(present):
        print("no indices: the test has no valid samples")
        return
    grid = Table("axis", *(title for title, *_ in INDICES))
    for name, row in indices(metrics).items():
        grid.add_row(name, *row)
    terminal.show(terminal.console(), grid)
    for name, row in metrics.get("force_axes", {}).items():
        terminal.say(
            f"{name}: largest error of the load {shown(row['max_force_error_n'], KN, 'kN')} "
            f"({shown(row['max_force_error_percent'], 1.0, '%')}), rms {shown(row['rms_force_error_n'], KN, 'kN')}"
        )
    terminal.say(
        f"displacement {shown(metrics['min_displacement_m'], MM, 'mm')} to "
        f"{shown(metrics['max_displacement_m'], MM, 'mm')}, at the end "
        f"{shown(metrics['end_displacement_m'], MM, 'mm')}; energy error (HSEM) "
        f"{shown(metrics['hsem_percent'], 1.0, '%')}"
    )


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
