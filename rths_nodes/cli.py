"""The command line ``rths``, and the entry points of the node executables."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import rths_nodes
from rths_nodes import cli_identify, hosts, registry
from rths_nodes import scenario as scenarios
from rths_nodes.gathering import ACTUATOR_NODES
from rths_nodes.params import ConfigError, table, unknown
from rths_nodes.record.recover import RecordingError
from rths_nodes.timing import trimmed

REFUSED, FAILED, TRIPPED, INTERRUPTED = 2, 1, 3, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sub-command; the exit code: 0 finished, 1 failed, 2 refused, 3 tripped, 130 interrupted."""
    _find_ros()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["node"] and len(words) > 1:
        return node_main(words[1], words[2:])
    options = _parser().parse_args(words)
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


def _find_ros() -> None:
    """A package installed by pip is not in AMENT_PREFIX_PATH unless somebody puts it there."""
    if (Path(sys.prefix) / "share" / "ament_index").is_dir():
        os.environ.setdefault("AMENT_PREFIX_PATH", sys.prefix)


def _complain(message: str, code: int) -> int:
    print(f"rths: {message}", file=sys.stderr)
    return code


# -- nodes ------------------------------------------------------------------------------------------------


def node_main(role: str, arguments: Sequence[str] | None = None) -> int:
    """Run one node until the test is over: what ``ros2 run rths_nodes <role>`` and the runner start."""
    _find_ros()
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    try:
        from rths_nodes.ros import single
    except ImportError as error:
        return _complain(f"ROS 2 is not installed here ({error})", FAILED)
    return single.run(role, sys.argv[1:] if arguments is None else arguments, hosts.open_writer)


# -- run --------------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    if options.report:
        _check_writable(Path(options.report))
    loaded = _loaded(options)
    record = options.record
    if record is None and options.host != "embedded" and not options.no_record:
        record = str(Path("runs") / loaded.run_id())
    with _interruptible() as interrupted, _progress(loaded.name) as progress:
        report = hosts.run(
            loaded,
            host=options.host,
            pace=options.pace,
            actuator_nodes=options.actuator_nodes,
            record=record,
            keep=bool(options.report) and record is None,
            faults=options.fault,
            progress=progress,
            interrupted=interrupted,
        )
    if options.report:
        _write_report(report.read(), Path(options.report))
    if options.json:
        print(json.dumps(_finite(_json(report)), indent=2))
    else:
        _print_report(report, options.report)
    return report.exit_code


def _loaded(options: argparse.Namespace) -> scenarios.Scenario:
    """The scenario of the command line: the case first, then what ``--set`` changes."""
    loaded = scenarios.load(options.scenario)
    return scenarios.override(loaded.case(options.case) if options.case else loaded, options.set)


def _check_writable(path: Path) -> None:
    parent = path.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if path.is_dir() or not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ConfigError(f"{path}: a report cannot be written there")


def _write_report(run: Any, path: Path) -> None:
    from rths_nodes.record.report import write_report

    write_report(run, path)


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


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda sample, samples: bar.update(task, completed=sample, total=samples)


def _json(report: hosts.Report) -> dict[str, Any]:
    timing = {
        name: trimmed(value) if name.endswith("_histogram") else value for name, value in report.timing.items()
    }
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
        "timing": timing,
        "recording": str(report.recording) if report.recording else None,
        "notes": report.notes,
    }


def _finite(entry: Any) -> Any:
    """JSON has no nan and no infinity: null."""
    if isinstance(entry, dict):
        return {key: _finite(value) for key, value in entry.items()}
    if isinstance(entry, list):
        return [_finite(value) for value in entry]
    return None if isinstance(entry, float) and not math.isfinite(entry) else entry


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
    if report.metrics:
        grid = Table("axis", "max error", "of max target", "error norm", "delay", "tracking indicator")
        for name, row in report.metrics["axes"].items():
            grid.add_row(
                name,
                _shown(row["max_error_m"], 1e3, "mm"),
                _shown(row["max_error_percent"], 1.0, "%"),
                _shown(row["error_norm_percent"], 1.0, "%"),
                _shown(row["delay_s"], 1e3, "ms"),
                _shown(row["tracking_indicator_m2"], 1e6, "mm²"),
            )
        console.print(grid)
        metrics = report.metrics
        console.print(
            f"displacement {_shown(metrics['min_displacement_m'], 1e3, 'mm')} to "
            f"{_shown(metrics['max_displacement_m'], 1e3, 'mm')}, at the end "
            f"{_shown(metrics['end_displacement_m'], 1e3, 'mm')}; energy error (HSEM) "
            f"{_shown(metrics['hsem_percent'], 1.0, '%')}"
        )
    loop = report.timing.get("loop")
    if loop:
        text = f"loop {_shown(loop['median_s'], 1e6, 'µs')} median, {_shown(loop['p999_s'], 1e6, 'µs')} p99.9"
        if report.pace == "realtime":
            text += f"; {report.timing['missed']:.0f} ticks missed, {report.timing['bridged']:.0f} bridged"
        console.print(text)
    for note in report.notes:
        console.print(f"note: {note}", markup=False)
    if report.recording:
        console.print(f"recording: {_short(report.recording)}", markup=False, soft_wrap=True)
    if page:
        console.print(f"report: {page}", markup=False, soft_wrap=True)


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _shown(value: float, factor: float, unit: str) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value * factor:.4g} {unit}"


# -- compare ----------------------------------------------------------------------------------------------


def _compare(options: argparse.Namespace) -> int:
    from rths_nodes import comparison

    figure = Path(options.figure) if options.figure else None
    if figure:
        comparison.check_figure(figure)
        _check_writable(figure)
    loaded = scenarios.load(options.scenario)
    cases = [name.strip() for part in options.cases for name in part.split(",")]
    chosen = comparison.variants(loaded, options.set, cases, options.common)
    with _progress(loaded.name) as progress:
        response = options.response or comparison.has_response(chosen)
        results = comparison.compare(chosen, keep=figure is not None, response=response, progress=progress)
    if figure:
        comparison.write_figure(results, figure)
    if options.json:
        print(json.dumps(_finite(comparison.as_json(loaded, results)), indent=2))
    else:
        _print_comparison(loaded.name, results, options.figure)
    return 0 if all(result.outcome == "finished" for result in results) else TRIPPED


_COMPARED = (("J1 (ms)", "J1"), ("J2 (%)", "J2"), ("J3 (%)", "J3"), ("max (mm)", "max_error_mm"))
"""Columns of a comparison, and the index of each."""


def _print_comparison(name: str, results: Sequence[Any], figure: str | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(f"{name}: {len(results)} variants, indices of the true displacement", markup=False)
    several = any(len(result.axes) > 1 for result in results)
    known = {key for result in results for key in result.variant.published}
    known |= {
        key
        for result in results
        for axis in result.axes
        for key in _of_axis(result.variant.published, axis, False)
    }
    grid = Table("variant", "outcome", box=box.SIMPLE)
    if several:
        grid.add_column("axis")
    for title, key in _COMPARED:
        grid.add_column(title, justify="right")
        if key in known:
            grid.add_column("published", justify="right", style="dim")
    grid.add_column("parameters, smallest to largest")
    for result in results:
        colour = "green" if result.outcome == "finished" else "red"
        for number, axis in enumerate(result.axes or {"": {}}):
            first = (Text(result.variant.name), Text(result.outcome, colour)) if number == 0 else ("", "")
            published = _of_axis(result.variant.published, axis, number == 0)
            row = [*first, *([axis] if several else []), *_compared(result, axis, known, published)]
            grid.add_row(*row, _ranges(result.parameters, axis))
    console.print(grid)
    if any(result.response for result in results):
        _print_response(console, results)
    shown = {key for result in results for key in _in_tables(result)}
    others = [key for key in sorted(known) if key not in shown]
    for result in results:
        for key in (key for key in others if key in result.variant.published):
            found, printed = result.values.get(key, math.nan), result.variant.published[key]
            console.print(f"{result.variant.name}: {key} {found:.4g}, published {printed:g}", markup=False)
        if result.reason:
            console.print(f"{result.variant.name}: {result.outcome}: {result.reason}", markup=False)
    if figure:
        console.print(f"figure: {figure}", markup=False, soft_wrap=True)


def _of_axis(published: Any, axis: str, first: bool) -> dict[str, float]:
    """What was published of this axis; what was published of all of them stands at the first."""
    own = {key: published[f"{key}_{axis}"] for _, key in _COMPARED if f"{key}_{axis}" in published}
    return (dict(published) if first else {}) | own


def _in_tables(result: Any) -> Iterator[str]:
    """Names of the published values that the tables show."""
    from rths_nodes.comparison import RESPONSE

    yield from (key for _, key in _COMPARED)
    yield from (f"{key}_{axis}" for _, key in _COMPARED for axis in result.axes)
    yield from (f"{kind}_{dof}" for kind in RESPONSE for dof in result.response)


def _print_response(console: Any, results: Sequence[Any]) -> None:
    """Response errors beside the published ones."""
    from rich import box
    from rich.table import Table

    from rths_nodes.comparison import RESPONSE

    console.print("response, RMS error against the whole structure computed in one piece")
    grid = Table("variant", "degree of freedom", box=box.SIMPLE)
    for title in ("displacement (%)", "published", "absolute acceleration (%)", "published"):
        grid.add_column(title, justify="right", style="dim" if title == "published" else None)
    for result in results:
        for number, (dof, errors) in enumerate(result.response.items()):
            row = [result.variant.name if number == 0 else "", dof]
            for kind, key in RESPONSE.items():
                printed = result.variant.published.get(f"{kind}_{dof}")
                row += _plain(errors[key]), "-" if printed is None else f"{printed:g}"
            grid.add_row(*row)
    console.print(grid)


def _compared(result: Any, axis: str, known: set[str], published: Any) -> Iterator[str]:
    from rths_nodes.comparison import AXIS_INDICES

    for _, key in _COMPARED:
        index, factor = AXIS_INDICES[key]
        yield _plain(factor * result.axes.get(axis, {}).get(index, math.nan))
        if key in known:
            yield f"{published[key]:g}" if key in published else "-"


def _plain(value: float) -> str:
    """A number of a table whose heads have the units: three figures, and no powers of ten."""
    if not math.isfinite(value):
        return "-"
    if abs(value) < 5e-4:
        return "0" if value == 0.0 else "< 0.001" if value > 0.0 else "> -0.001"
    return f"{value:.{max(0, min(3, 2 - math.floor(math.log10(abs(value)))))}f}"


def _ranges(parameters: Any, axis: str) -> str:
    """The range of each inner number of the compensator on this axis, one below the other."""
    rows = []
    for quantity, row in parameters.items():
        low, high = (f"{value:.4g}" for value in row.get(axis, row.get("", (math.nan, math.nan))))
        rows.append(f"{quantity} {low}" + (f" to {high}" if high != low else ""))
    return "\n".join(rows)


# -- stability --------------------------------------------------------------------------------------------


def _stability(options: argparse.Namespace) -> int:
    from rths_nodes.stability import judge

    figure = Path(options.figure) if options.figure else None
    if figure:
        from rths_nodes.comparison import check_figure

        check_figure(figure)
        _check_writable(figure)
    loaded = _loaded(options)
    judgement = judge(loaded)
    if figure:
        from rths_nodes.record.figures import stability

        stability.write(judgement, figure, loaded.name)
    if options.json:
        print(json.dumps(_finite({"scenario": loaded.name} | judgement.data()), indent=2))
    else:
        _print_stability(loaded.name, judgement, figure)
    return 0


def _print_stability(name: str, judgement: Any, figure: Path | None) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    word, _, reason = judgement.verdict().partition(": ")
    console.print(f"{name}: [bold {'green' if judgement.stable else 'red'}]{word}[/]: {reason}", soft_wrap=True)
    grid = Table("mode", box=box.SIMPLE)
    for title in ("frequency", "damping"):
        grid.add_column(title, justify="right")
    for axis in judgement.axes:
        where = f" {axis}" if len(judgement.axes) > 1 else ""
        grid.add_column(f"k*/k{where}", justify="right")
        grid.add_column(f"c*ω/k{where}", justify="right")
    for title in ("in the loop", "damping"):
        grid.add_column(title, justify="right")
    grid.add_column("")
    for number, mode in enumerate(judgement.modes, 1):
        pairs = zip(mode.apparent_stiffness, mode.apparent_damping, strict=True)
        apparent = [f"{value:.3f}" for pair in pairs for value in pair]
        loop = (_shown(mode.loop_frequency, 1.0, "Hz"), _shown(mode.loop_damping_ratio, 100.0, "%"))
        whole = (_shown(mode.frequency, 1.0, "Hz"), _shown(mode.damping_ratio, 100.0, "%"))
        grid.add_row(str(number), *whole, *apparent, *loop, "stable" if mode.stable else "[bold red]UNSTABLE[/]")
    console.print(grid)
    for words in (*judgement.margins(), *(f"assumed: {words}" for words in judgement.loop.assumptions)):
        console.print(f"  {words}", markup=False, soft_wrap=True)
    if figure:
        console.print(f"figure: {figure}", markup=False, soft_wrap=True)


# -- recordings -------------------------------------------------------------------------------------------


def _report(options: argparse.Namespace) -> int:
    from rths_nodes.record.reading import read_run

    out = Path(options.out or f"{Path(options.recording).resolve().name}.html")
    _check_writable(out)
    _write_report(read_run(options.recording), out)
    print(out)
    return 0


def _estimate(options: argparse.Namespace) -> int:
    from rths_nodes.record.estimation import estimate
    from rths_nodes.record.reading import read_run

    found = estimate(read_run(options.recording), options.axis, options.start, options.end)
    if options.json:
        print(json.dumps(_finite({name: asdict(entry) for name, entry in found.items()}), indent=2))
    else:
        for name, entry in found.items():
            _print_estimate(name, entry)
    return 0


def _print_estimate(name: str, found: Any) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    kind = f", a sine of {found.sine:.4g} Hz" if found.sine else ""
    console.print(f"{name}: {found.start:.3f} to {found.end:.3f} s, {found.samples} samples{kind}", markup=False)
    grid = Table("", "target -> measured", "command -> measured", box=box.SIMPLE)
    rows = [
        ("delay J1", "delay", 1e3, "ms"),
        ("delay FEI", "fei_delay", 1e3, "ms"),
        ("amplitude ratio FEI", "fei_amplitude", 1.0, ""),
        ("equivalent frequency", "fei_frequency", 1.0, "Hz"),
        ("delay of the sine", "sine_delay", 1e3, "ms"),
        ("amplitude ratio of the sine", "sine_amplitude", 1.0, ""),
    ]
    for title, key, factor, unit in rows[: None if found.sine else 4]:
        grid.add_row(
            title, *(_shown(getattr(each, key), factor, unit).strip() for each in (found.tracking, found.loading))
        )
    console.print(grid)
    for compensator, values in found.suggested.items():
        words = " ".join(f"compensator.{key}={_assigned(value)}" for key, value in values.items())
        console.print(f"suggested: compensator.type={compensator} {words}", markup=False, soft_wrap=True)
    for note in found.notes:
        console.print(f"note: {note}", markup=False)


def _assigned(value: Any) -> str:
    """As ``--set`` takes it."""
    return f"[{', '.join(f'{entry:.5g}' for entry in value)}]" if isinstance(value, list) else f"{value:.5g}"


def _identify(options: argparse.Namespace) -> int:
    return cli_identify.identify(_loaded(options), options, _progress)


def _recover(options: argparse.Namespace) -> int:
    from rths_nodes.record.bag import recover

    found = recover(options.recording)
    if found.was_complete:
        print(f"{options.recording}: is complete, nothing to recover ({found.messages} messages)")
    else:
        print(f"{options.recording}: recovered {found.messages} messages, {found.lost_bytes} bytes lost")
    return 0


def _replay(options: argparse.Namespace) -> int:
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
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
    print(
        f"  {loaded.steps} steps of {loaded.samples_per_step} samples at {loaded.servo_rate:g} Hz: "
        f"{samples} samples, {samples * loaded.dt:.6g} s{slower}"
    )
    print(f"  {len(loaded.dof_names())} degree(s) of freedom, axes: {', '.join(loaded.axes)}")
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
    print(json.dumps(_finite(diagnosis.data()), indent=2) if options.json else doctor.text(diagnosis))
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
    where = run.add_mutually_exclusive_group()
    where.add_argument("--record", metavar="DIR", help="recording; by default in runs/, embedded: none")
    where.add_argument("--no-record", action="store_true", help="do not record")
    run.add_argument("--report", metavar="FILE", help="write a report (HTML)")
    run.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND@TIME[:ARGUMENTS]",
        help="something that goes wrong on purpose, e.g. delay@2:target,3; may be repeated",
    )
    run.add_argument("--json", action="store_true", help="print one JSON object")

    compare = add("compare", _compare, "run variants of a scenario side by side, and print one table")
    compare.add_argument("scenario", help="name of a shipped scenario or path of a YAML file")
    compare.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="'KEY=VALUE ...'",
        help="one variant: what it changes, several values with spaces or commas between them; repeat for more",
    )
    compare.add_argument(
        "--cases", action="append", default=[], metavar="NAME,...", help="cases of the scenario; by default all"
    )
    compare.add_argument(
        "--with",
        action="append",
        default=[],
        dest="common",
        metavar="SECTION.KEY=VALUE",
        help="change a value in all variants; may be repeated",
    )
    compare.add_argument(
        "--response",
        action="store_true",
        help="also compute the whole structure in one piece, and the errors of the response",
    )
    compare.add_argument("--figure", metavar="FILE", help="draw all variants into one figure (.png, .svg, .pdf)")
    compare.add_argument("--json", action="store_true", help="print one JSON object")

    estimated = add("estimate", _estimate, "estimate delay and amplitude of a loading system from a recording")
    estimated.add_argument("recording")
    estimated.add_argument("--axis", metavar="NAME", help="of one axis; by default of all")
    estimated.add_argument("--from", type=float, dest="start", metavar="S", help="leave out what was before, s")
    estimated.add_argument("--to", type=float, dest="end", metavar="S", help="leave out what comes after, s")
    estimated.add_argument("--json", action="store_true", help="print one JSON object")

    identified = add("identify", _identify, "identify the loading system of a rig, and write a model file")
    add_scenario(identified)
    cli_identify.add_arguments(identified)

    stability = add("stability", _stability, "judge whether the loop of a test is stable, without running it")
    add_scenario(stability)
    stability.add_argument("--figure", metavar="FILE", help="draw stiffness, damping, margins (.png, .svg, .pdf)")
    stability.add_argument("--json", action="store_true", help="print one JSON object")

    report = add("report", _report, "make a report (HTML) of a recording")
    report.add_argument("recording")
    report.add_argument("--out", metavar="FILE", help="default: <recording>.html in the current directory")
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
