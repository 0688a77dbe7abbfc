"""The command line ``rths``, and the entry points of the node executables."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rths_nodes
from rths_nodes import hosts, registry
from rths_nodes import scenario as scenarios
from rths_nodes.commands import compare, estimate, identify, stability, terminal
from rths_nodes.commands.terminal import FAILED, INTERRUPTED, REFUSED
from rths_nodes.gathering import ACTUATOR_NODES
from rths_nodes.node import find_ros
from rths_nodes.params import ConfigError, table, unknown
from rths_nodes.record.recover import RecordingError
from rths_nodes.ros.names import NAMESPACE, OBSERVERS
from rths_nodes.timing import trimmed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sub-command; the exit code: 0 finished, 1 failed, 2 refused, 3 tripped, 130 interrupted."""
    find_ros()
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
    except ConfigError as error:
        return _complain(str(error), REFUSED)
    except RecordingError as error:
        return _complain(str(error), FAILED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)
    return code


def _complain(message: str, code: int) -> int:
    print(f"rths: {message}", file=sys.stderr)
    return code


# -- run --------------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    if options.reference and not options.report:
        raise ConfigError("--reference: belongs into a report; give --report FILE")
    if options.report:
        terminal.check_writable(Path(options.report))
    loaded = _loaded(options)
    record = options.record
    if record is None and options.host != "embedded" and not options.no_record:
        record = str(Path("runs") / loaded.run_id())
    with _interruptible() as interrupted, terminal.progress(loaded.name) as progress:
        report = hosts.run(
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
    if options.report:
        _write_report(report.read(), Path(options.report), options.reference)
    if options.json:
        print(json.dumps(terminal.finite(_json(report)), indent=2))
    else:
        _print_report(report, options.report)
    return report.exit_code


def _loaded(options: argparse.Namespace) -> scenarios.Scenario:
    """The scenario of the command line: the case first, then what ``--set`` changes."""
    return scenarios.load(options.scenario, options.set, options.case or "")


def _write_report(run: Any, path: Path, reference: bool) -> None:
    from rths_nodes.record.report import write_report

    write_report(run, path, reference)


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM asks for an orderly stop, the second ends at once."""
    asked: list[int] = []

    def handle(number: int, _: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _json(report: hosts.Report) -> dict[str, Any]:
    return {
        "scenario": report.scenario.name,
        "host": report.host,
        "pace": report.pace,
        "actuator_nodes": report.actuator_nodes,
        "outcome": report.outcome,
        "reason": report.reason,
        "samples": report.samples,
        "duration_s": report.scenario.samples * report.scenario.dt,
        "wall_s": report.wall_s,
        "metrics": report.metrics,
        "compensator": {"type": type(report.scenario.compensator).type_name} | report.compensator,
        "timing": _trimmed(report.timing),
        "messages": report.messages,
        "recording": str(report.recording) if report.recording else None,
        "faults": list(report.faults),
        "notes": report.notes,
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


def _print_report(report: hosts.Report, page: str | None) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    colour = "green" if report.outcome == "finished" else "red"
    seconds = report.samples * report.scenario.dt
    console.print(
        f"{report.scenario.name}: [bold {colour}]{report.outcome}[/] after {report.samples} samples "
        f"({seconds:.3f} s of test) in {report.wall_s:.1f} s, {report.host}, {report.pace}"
    )
    if report.reason:
        console.print(f"reason: {report.reason}", markup=False)
    if report.faults:
        bridged = report.timing.get("bridged", 0)
        console.print(f"faults: {' '.join(report.faults)}; {bridged:.0f} samples bridged", markup=False)
    if report.metrics:
        grid = Table("axis", "max error", "of max target", "error norm", "delay", "tracking indicator")
        for name, row in report.metrics["axes"].items():
            grid.add_row(
                name,
                terminal.shown(row["max_error_m"], 1e3, "mm"),
                terminal.shown(row["max_error_percent"], 1.0, "%"),
                terminal.shown(row["error_norm_percent"], 1.0, "%"),
                terminal.shown(row["delay_s"], 1e3, "ms"),
                terminal.shown(row["tracking_indicator_m2"], 1e6, "mm²"),
            )
        console.print(grid)
        metrics = report.metrics
        console.print(
            f"displacement {terminal.shown(metrics['min_displacement_m'], 1e3, 'mm')} to "
            f"{terminal.shown(metrics['max_displacement_m'], 1e3, 'mm')}, at the end "
            f"{terminal.shown(metrics['end_displacement_m'], 1e3, 'mm')}; energy error (HSEM) "
            f"{terminal.shown(metrics['hsem_percent'], 1.0, '%')}"
        )
    loop = report.timing.get("loop")
    if loop:
        median, rare = (terminal.duration(loop[key]) for key in ("median_s", "p999_s"))
        text = f"loop {median} median, {rare} p99.9"
        if report.pace == "realtime":
            text += f"; {report.timing['missed']:.0f} ticks missed, {report.timing['bridged']:.0f} bridged"
        console.print(text)
    if hops := report.timing.get("hops"):
        means = {name: terminal.duration(hop["mean_s"]) for name, hop in hops.items()}
        console.print(f"means: {', '.join(f'{name} {mean}' for name, mean in means.items())}")
    for note in report.notes:
        console.print(f"note: {note}", markup=False)
    if report.recording:
        console.print(f"recording: {_short(report.recording)}", markup=False, soft_wrap=True)
    if page:
        console.print(f"report: {page}", markup=False, soft_wrap=True)


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


# -- recordings -------------------------------------------------------------------------------------------


def _report(options: argparse.Namespace) -> int:
    from rths_nodes.record.reading import read_run

    out = Path(options.out or f"{Path(options.recording).resolve().name}.html")
    terminal.check_writable(out)
    _write_report(read_run(options.recording), out, options.reference)
    print(out)
    return 0


def _stability(options: argparse.Namespace) -> int:
    return stability.run(_loaded(options), options)


def _identify(options: argparse.Namespace) -> int:
    return identify.identify(_loaded(options), options, terminal.progress)


def _recover(options: argparse.Namespace) -> int:
    from rths_nodes.record.bag import recover

    found = recover(options.recording)
    if found.was_complete:
        print(f"{options.recording}: is complete, nothing to recover ({found.messages} messages)")
    else:
        print(f"{options.recording}: recovered {found.messages} messages, {found.lost_bytes} bytes lost")
    return 0


def _replay(options: argparse.Namespace) -> int:
    from rths_nodes.record import bag
    from rths_nodes.ros.replaying import replay

    recording = bag.read(options.recording)
    with _interruptible() as interrupted:
        count = replay(
            {name: topic.type for name, topic in recording.topics.items()},
            {name: topic.qos for name, topic in recording.topics.items()},
            recording.messages(),
            rate=options.rate,
            interrupted=interrupted,
        )
    print(f"{count} messages published")
    return INTERRUPTED if interrupted() else 0


# -- what there is ----------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    families = [options.family] if options.family else ["scenario", *registry.FAMILIES]
    for family in families:
        names = list(scenarios.shipped()) if family == "scenario" else registry.names(family)
        if options.family:
            print(*names, sep="\n")
        else:
            print(f"{family}: {', '.join(names)}")
    return 0


def parameter_page() -> str:
    """All parameters of all components and sections, as Markdown: doc/parameters.md."""
    from rths_nodes.bridges import BridgeParams
    from rths_nodes.heartbeat import HeartbeatParams
    from rths_nodes.monitors import MonitorParams
    from rths_nodes.safety import Limits
    from rths_nodes.scenario import Axis, Recording, Scenario
    from rths_nodes.sensors import Sensors

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


def _params(options: argparse.Namespace) -> int:
    if options.component is None:
        print(parameter_page())
        return 0
    from rich import box
    from rich.console import Console
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
    console = Console(width=None if sys.stdout.isatty() else 160)
    for family, name in found:
        component = registry.load(family, name)
        summary = (component.__doc__ or "").strip().splitlines()[0]
        console.print(f"[bold]{name}[/] ({family.replace('_', ' ')}): {summary}", highlight=False)
        grid = Table("parameter", "unit", "bound", "default", "meaning", box=box.SIMPLE)
        for row in table(component.Params):
            grid.add_row(row.name, row.unit, row.bound, row.default, row.doc)
        console.print(grid if grid.row_count else "  no parameters\n", highlight=False)
    return 0


def _check(options: argparse.Namespace) -> int:
    from rths_nodes.loop import Loop

    loaded = _loaded(options)
    loop = Loop(loaded)
    samples = loaded.samples
    print(f"{loaded.name}: fits together")
    slower = f", {loaded.time_ratio} times slower" if loaded.time_ratio > 1 else ""
    each, dof = loaded.samples_per_step, len(loaded.dof_names())
    print(
        f"  {loaded.steps} steps of {each} sample{'s'[: each > 1]} at {loaded.servo_rate:g} Hz: "
        f"{samples} samples, {samples * loaded.dt:.6g} s{slower}"
    )
    print(f"  {dof} degree{'s'[: dof > 1]} of freedom, axes: {', '.join(loaded.axes)}")
    peak = abs(loop.substructure.external_force).max()
    print(f"  largest external force {peak / 1e3:.4g} kN")
    if loaded.soft_start:
        print(f"  soft start: {loaded.soft_start_steps} of the steps, {loaded.soft_start.total:.4g} s")
    if loaded.cases:
        print(f"  cases: {', '.join(loaded.cases)}")
    for words in _excess_travel(loaded):
        print(f"  {words}")
    for words in loaded.cautions():
        print(f"  caution: {words}")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from rths_nodes import doctor, floor, machine

    doctor.check(options.rate, options.seconds)
    facts = machine.facts(floor.PRIORITY)
    paced, lateness = floor.paced(options.rate, options.seconds)
    diagnosis = doctor.diagnose(facts, paced, lateness, floor.try_ping_pong(), floor.python_step())
    print(json.dumps(terminal.finite(diagnosis.data()), indent=2) if options.json else doctor.text(diagnosis))
    return 0


def _excess_travel(loaded: scenarios.Scenario) -> Iterator[str]:
    """How far each axis may go on when what it needs does not come any more."""
    from rths_nodes.safety import excess_travel

    bridge = loaded.bridge.max_bridge
    for name, limits in loaded.limits.items():
        travel = excess_travel(limits, bridge)
        yield (
            f"axes.{name}: at most {1e3 * travel:.3g} mm further until it is safe: {1e3 * bridge:g} ms bridged at "
            f"{limits.velocity:g} m/s, then {limits.deceleration:g} m/s^2"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rths", description="Real-time hybrid simulation with ROS 2.")
    parser.add_argument("--version", action="version", version=f"rths {rths_nodes.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], words: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".")
        sub.set_defaults(command=command)
        return sub

    def add_scenario(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("scenario", help="name of a shipped scenario (rths list scenario) or path of a YAML file")
        sub.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="SECTION.KEY=VALUE",
            help="change a value; may be repeated",
        )
        sub.add_argument("--case", metavar="NAME", help="a variant that the scenario names (rths check SCENARIO)")

    def add_reference(sub: argparse.ArgumentParser) -> None:
        words = "in the report, also the response of the whole structure computed in one piece (takes its time)"
        sub.add_argument("--reference", action="store_true", help=words)

    run = add("run", _run, "run a scenario")
    add_scenario(run)
    run.add_argument("--host", choices=hosts.HOSTS, default="embedded", help="default: %(default)s")
    run.add_argument("--pace", choices=hosts.PACES, default="lockstep", help="default: %(default)s")
    run.add_argument(
        "--actuator-nodes",
        choices=ACTUATOR_NODES,
        default="one",
        help="one actuator node, or one more per axis for axes that are not coupled; default: %(default)s",
    )
    run.add_argument(
        "--apart",
        action="append",
        choices=OBSERVERS,
        default=[],
        help="with --host composed: a node that has a process of its own all the same; may be repeated",
    )
    run.add_argument(
        "--namespace",
        default=NAMESPACE,
        metavar="NAME",
        help="of the rig's nodes and topics; two rigs on one machine need two; default: %(default)s",
    )
    where = run.add_mutually_exclusive_group()
    where.add_argument("--record", metavar="DIR", help="recording; by default in runs/, embedded: none")
    where.add_argument("--no-record", action="store_true", help="do not record")
    run.add_argument("--report", metavar="FILE", help="write a report (HTML)")
    add_reference(run)
    run.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND@TIME[:ARGUMENTS]",
        help="something that goes wrong on purpose, e.g. delay@2:target,3; may be repeated",
    )
    run.add_argument("--json", action="store_true", help="print one JSON object")

    compared = add("compare", compare.run, "run variants of a scenario side by side, and print one table")
    compared.add_argument("scenario", help="name of a shipped scenario or path of a YAML file")
    compare.add_arguments(compared)

    estimated = add("estimate", estimate.run, "estimate delay and amplitude of a loading system from a recording")
    estimated.add_argument("recording")
    estimate.add_arguments(estimated)

    identified = add("identify", _identify, "identify the loading system of a rig, and write a model file")
    add_scenario(identified)
    identify.add_arguments(identified)

    judged = add("stability", _stability, "judge whether the loop of a test is stable, without running it")
    add_scenario(judged)
    stability.add_arguments(judged)

    report = add("report", _report, "make a report (HTML) of a recording")
    report.add_argument("recording")
    report.add_argument("--out", metavar="FILE", help="default: <recording>.html in the current directory")
    add_reference(report)
    recover = add("recover", _recover, "complete the recording of a recorder that was killed")
    recover.add_argument("recording")
    replay = add("replay", _replay, "publish a recording again on its topics, with /clock")
    replay.add_argument("recording")
    replay.add_argument("--rate", type=float, default=1.0, help="speed; default: %(default)s")

    listing = add("list", _list, "list scenarios and components")
    listing.add_argument("family", nargs="?", choices=["scenario", *registry.FAMILIES], metavar="FAMILY")
    params = add("params", _params, "show the parameters of a component, or all of them as Markdown")
    params.add_argument("component", nargs="?")
    doctor = add("doctor", _doctor, "tell what this machine grants to real time, and for which rates it is good")
    doctor.add_argument("--seconds", type=float, default=5.0, help="of a bare paced loop; default: %(default)g")
    doctor.add_argument(
        "--rate", type=float, default=1024.0, metavar="HZ", help="of that loop; default: %(default)g"
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    check = add("check", _check, "check a scenario without running it")
    add_scenario(check)
    return parser


if __name__ == "__main__":
    sys.exit(main())
