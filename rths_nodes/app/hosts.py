"""Run a scenario on a host: what the command line and the public Python API share.

embedded    one process without ROS (``loop.py``), lockstep only
composed    all ROS nodes in one process
processes   one process per node
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rths_nodes.core import yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.flat_names import flatten, unflatten
from rths_nodes.core.version import __version__
from rths_nodes.loop.embedded import Loop
from rths_nodes.loop.faults import kinds as faulty
from rths_nodes.loop.faults.embedded import FaultyLoop
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.axis_layout import ACTUATOR_NODES
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.timing import gathered
from rths_nodes.recording import bag
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Collector, Run
from rths_nodes.recording.sink import RecordingSink
from rths_nodes.ros import names

HOSTS = ("embedded", "composed", "processes")
PACES = ("lockstep", "realtime")


@dataclass
class RunResult:
    """What a run came to; ``run`` holds the arrays where they were kept in memory (embedded)."""

    scenario: Scenario
    host: str
    pace: str
    outcome: str
    reason: str
    samples: int
    wall_s: float
    exit_code: int
    metrics: dict[str, Any]
    compensator: dict[str, Any]
    timing: dict[str, Any]
    messages: dict[str, Any] | None = None
    """What the recorder has missed, by topic, and whether the recording is complete; None where nobody counted."""
    recording: Path | None = None
    run: Run | None = None
    notes: list[str] = field(default_factory=list)
    actuator_nodes: str = "one"
    faults: tuple[str, ...] = ()

    def read(self) -> Run:
        """The arrays of the run, from memory or from the recording. Raises ConfigError when there is neither."""
        if self.run is not None:
            return self.run
        if self.recording is None:
            raise ConfigError("this run was not recorded: its histories are gone; leave out --no-record")
        return read_run(self.recording)


def recorded_topics(namespace: str) -> list[tuple[str, names.Topic]]:
    """Full names and rows of everything that is recorded."""
    return [(f"/{namespace}/{topic.name}", topic) for topic in names.TOPICS.values() if topic.recorded]


def open_writer(directory: str, topics: list[tuple[str, names.Topic]], information: dict[str, str]) -> bag.Writer:
    """A recording with the QoS of the topics' rows."""
    rows = [
        bag.Topic(
            name,
            row.type,
            bag.offered_qos("reliable", "transient_local" if row.latched else "volatile", row.depth),
        )
        for name, row in topics
    ]
    return bag.Writer(directory, rows, information)


def run(
    scenario: str | os.PathLike[str] | Scenario,
    overrides: Iterable[str] = (),
    *,
    host: str = "embedded",
    pace: str = "lockstep",
    actuator_nodes: str = "one",
    apart: Sequence[str] = (),
    namespace: str = names.NAMESPACE,
    record: str | os.PathLike[str] | None = None,
    keep: bool = True,
    faults: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> RunResult:
    """Run ``scenario`` (a Scenario, a path or the name of a shipped one) on ``host``.

    ``actuator_nodes`` is ``one`` for the whole rig, or ``per_axis``: each axis has a node of its own, gathered by
    the actuator node. ``apart`` are those of monitor and recorder that have processes of their own beside the host
    composed. ``namespace`` is that of the rig's nodes and topics. ``record`` is the directory of the
    recording, None for none; ``keep`` keeps the histories of an embedded run in memory. ``faults`` are put in on
    purpose (``faults.py``). ``progress`` gets sample and samples; ``interrupted`` tells that the operator wants to
    stop.
    Raises ConfigError for anything that must not run.
    """
    loaded = scenario if isinstance(scenario, Scenario) else files.load(scenario)
    loaded = override(loaded, overrides)
    _check(host, pace, actuator_nodes, apart)
    namespace = names.checked_namespace(namespace)
    assembly = Assembly(loaded)
    assembly.codec()
    directory = Path(record).absolute() if record is not None else None
    if names.RECORDER in apart and directory is None:
        raise ConfigError("apart = recorder: there is none without a recording")
    # builds every component: what is wrong is refused here, before any node starts
    loop = _loop(assembly, host, pace, directory is not None, faults)
    if directory is not None:
        bag.check_free(directory)
    told = (lambda sample: progress(sample, loaded.samples)) if progress else None
    started = time.monotonic()
    if host == "embedded":
        report = _embedded(loop, namespace, directory, keep, told, interrupted, faults)
    else:
        report = _nodes(loaded, host, pace, actuator_nodes, apart, namespace, directory, faults, told, interrupted)
    report.wall_s = time.monotonic() - started
    report.faults = tuple(faults)
    return report


def run_and_read(scenario: Any, overrides: Iterable[str] = (), **options: Any) -> Run:
    """As :func:`run`, but gives the histories; without ``record`` a node host records into a temporary place."""
    if options.get("host", "embedded") == "embedded" or options.get("record") is not None:
        return run(scenario, overrides, **options).read()
    with tempfile.TemporaryDirectory(prefix="rths_") as folder:
        return run(scenario, overrides, **(options | {"record": Path(folder) / "run"})).read()


def _loop(assembly: Assembly, host: str, pace: str, recorded: bool, faults: Sequence[str]) -> Loop:
    """The loop of the host embedded, with its faults. Raises ConfigError for what it or ``host`` cannot have."""
    parsed = [faulty.parse(words) for words in faults]
    faulty.check(parsed, assembly.scenario, host, pace, recorded)
    return FaultyLoop(assembly, parsed) if parsed and host == "embedded" else Loop(assembly)


def _check(host: str, pace: str, actuator_nodes: str, apart: Sequence[str]) -> None:
    for name, value, known in (
        ("host", host, HOSTS),
        ("pace", pace, PACES),
        ("actuator_nodes", actuator_nodes, ACTUATOR_NODES),
    ):
        if value not in known:
            raise ConfigError(f"{name} = {value!r}: must be one of {', '.join(known)}")
    if host == "embedded" and pace == "realtime":
        raise ConfigError("pace = 'realtime': the host embedded has no clock; use composed or processes")
    if host == "embedded" and actuator_nodes != "one":
        raise ConfigError(
            f"actuator_nodes = {actuator_nodes!r}: the host embedded has no nodes; use composed or processes"
        )
    for role in apart:
        if role not in names.OBSERVERS:
            raise ConfigError(f"apart = {role!r}: must be one of {', '.join(names.OBSERVERS)}")
    if apart and host != "composed":
        raise ConfigError(f"apart = {', '.join(apart)}: only of the host composed, not of {host}")


def information(scenario: Scenario, run_id: str, host: str, pace: str) -> dict[str, str]:
    """What stands in a recording about its run."""
    return {
        "scenario": yaml_text.dump(scenario.data()),
        "scenario_hash": scenario.shared_hash(run_id),
        "run_id": run_id,
        "host": host,
        "pace": pace,
        "version": __version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _embedded(
    loop: Loop,
    namespace: str,
    directory: Path | None,
    keep: bool,
    progress: Callable[[int], None] | None,
    interrupted: Callable[[], bool] | None,
    faults: Sequence[str] = (),
) -> RunResult:
    scenario, sinks = loop.scenario, []
    about = information(scenario, scenario.run_id(), "embedded", "lockstep")
    if faults:
        about["faults"] = " ".join(faults)
    collector = Collector(scenario, loop.assembly.names) if keep else None
    recording = None
    if directory is not None:
        topics = recorded_topics(namespace)
        recording = RecordingSink(open_writer(str(directory), topics, about), loop.assembly, namespace, about)
    sinks = [sink for sink in (collector, recording) if sink is not None]
    try:
        outcome = loop.run(sinks, progress, interrupted)
    except BaseException:
        if recording is not None:
            recording.abandon("the run was broken off")
        raise
    name = outcome.state.name.lower()
    if recording is not None:
        recording.close(outcome)
    return RunResult(
        scenario=scenario,
        host="embedded",
        pace="lockstep",
        outcome=name,
        reason=outcome.reason,
        samples=outcome.samples,
        wall_s=0.0,
        exit_code={State.FINISHED: 0, State.HELD: 130}.get(outcome.state, 3),
        metrics=outcome.metrics,
        compensator=unflatten(flatten(outcome.compensator, "compensator"), "compensator"),
        timing=outcome.timing,
        recording=directory,
        run=collector.run(about | {"outcome": name, "reason": outcome.reason}, outcome.metrics, outcome.timing)
        if collector
        else None,
    )


def _nodes(
    scenario: Scenario,
    host: str,
    pace: str,
    actuator_nodes: str,
    apart: Sequence[str],
    namespace: str,
    directory: Path | None,
    faults: Sequence[str],
    progress: Callable[[int], None] | None,
    interrupted: Callable[[], bool] | None,
) -> RunResult:
    from rths_nodes.ros.hosting import descriptions as launching

    axes = launching.axes_with_nodes(scenario, actuator_nodes)
    with tempfile.TemporaryDirectory(prefix="rths_") as folder:
        file = Path(folder) / f"{scenario.name}.yaml"
        file.write_text(yaml_text.dump(scenario.data()))
        descriptions = launching.describe(
            str(file),
            pace=pace,
            run_id=scenario.run_id(),
            record=str(directory or ""),
            namespace=namespace,
            host=host,
            console=host == "processes" or bool(apart),
            axes=axes,
            faults=faults,
        )
        result = _run_nodes(descriptions, host, apart, progress, interrupted)
    return RunResult(
        scenario=scenario,
        host=host,
        pace=pace,
        outcome=result.outcome,
        reason=result.reason,
        samples=result.sample,
        wall_s=0.0,
        exit_code=result.exit_code,
        metrics=result.section("metrics"),
        compensator=result.section("compensator"),
        timing=gathered(result.numbers),
        messages=_messages(result.section("recording")),
        recording=directory,
        notes=result.notes,
        actuator_nodes=actuator_nodes,
    )


def _messages(recording: dict[str, Any]) -> dict[str, Any] | None:
    """The recorder's last words as they are reported; None without a recorder that could say them."""
    if not recording:
        return None
    counts = {name: {topic: round(count) for topic, count in recording[name].items()} for name in ("gaps", "lost")}
    silent = sorted(recording.get("silent", {}))
    return counts | {"silent": silent, "complete": not silent and not any(counts["gaps"].values())}


def _run_nodes(
    descriptions: Sequence[Any],
    host: str,
    apart: Sequence[str],
    progress: Callable[[int], None] | None,
    interrupted: Callable[[], bool] | None,
) -> Any:
    if host == "processes":
        from rths_nodes.ros.hosting import processes

        return processes.run(descriptions, progress, interrupted)
    from rths_nodes.ros.hosting import composed

    return composed.run(descriptions, open_writer, progress, interrupted, apart)
