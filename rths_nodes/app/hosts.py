# SPDX-License-Identifier: Apache-2.0
"""Hosts of a run, for the command line and the Python API.

embedded    one process without ROS (``loop/embedded.py``)
composed    all ROS nodes in one process
processes   one process per node
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rths_nodes.core.data import Data, flatten, unflatten
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.protocols import Port
from rths_nodes.loop import faults as faulty
from rths_nodes.loop import options, outcomes
from rths_nodes.loop.compiled.running import KernelLoop, loop_over_kernels
from rths_nodes.loop.embedded import Loop, checked_loop
from rths_nodes.loop.executive.running import ExecutiveLoop
from rths_nodes.loop.faults import FaultyLoop
from rths_nodes.loop.indices.tracking import Delay
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.options import EMBEDDED, EXECUTIVE, RunOptions
from rths_nodes.loop.provenance import information
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import Overrides, override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.timing import LateData, gathered
from rths_nodes.recording import bag
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.run import Collector, Run
from rths_nodes.recording.sink import RecordingSink
from rths_nodes.ros import environment, names


@dataclass
class RunResult:
    scenario: Scenario
    host: str
    pace: str
    outcome: str
    reason: str
    samples: int
    wall_s: float
    exit_code: int
    metrics: Data
    compensator: Data
    timing: Data
    integrator: Data = field(default_factory=dict)
    messages: Data | None = None
    """Numbers of lost messages by topic, and whether the recording is complete. None without a recorder."""
    recording: Path | None = None
    run: Run | None = None
    notes: list[str] = field(default_factory=list)
    actuator_nodes: str = "one"
    faults: tuple[str, ...] = ()
    engine: str = ""
    assembly: Assembly | None = field(default=None, repr=False)
    """Second, unused assembly of the scenario after a run with kernels. None after any other run."""
    delays: list[Delay] = field(default_factory=list, repr=False)
    """Delays of the measured displacements, by axis. Empty unless the run was ``brief`` and used kernels."""

    @property
    def ending(self) -> str:
        """Outcome or, for an invalid test, the reason, e.g. ``not valid: 55 % bridged``."""
        return self.late.ending(self.outcome, self.samples)

    @property
    def late(self) -> LateData:
        bridge = self.scenario.bridge
        return LateData.from_timing(self.timing, self.timing.get("bridged", 0), bridge.max_bridge)

    def read(self) -> Run:
        """Return the histories of the run. Raises ConfigError if they were neither kept nor recorded."""
        if self.run is not None:
            return self.run
        if self.recording is None:
            raise ConfigError("the histories of this run were not recorded; leave out --no-record")
        return read_run(self.recording)


def recorded_topics(namespace: str, scenario: Scenario) -> list[tuple[str, names.Topic]]:
    rows = [topic for topic in names.TOPICS.values() if topic.recorded and topic.wanted(scenario)]
    return [(f"/{namespace}/{topic.name}", topic) for topic in rows]


def open_writer(directory: str, topics: list[tuple[str, names.Topic]], information: dict[str, str]) -> bag.Writer:
    rows = []
    for name, row in topics:
        durability = "transient_local" if row.latched else "volatile"
        rows.append(bag.Topic(name, row.type, bag.offered_qos("reliable", durability, row.depth)))
    return bag.Writer(directory, rows, information)


Watch = tuple[Callable[[int], None] | None, Callable[[], bool] | None, Callable[[str], None] | None]
"""The arguments ``progress``, ``interrupted`` and ``starting`` of :func:`run`."""


def run(
    scenario: files.Source,
    overrides: Overrides = (),
    *,
    keep: bool = True,
    brief: bool = False,
    progress: Callable[[int, int], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
    starting: Callable[[str], None] | None = None,
    port: Port | None = None,
    preferred: str = options.AUTO,
    **values: Any,
) -> RunResult:
    """Run ``scenario`` with ``overrides``, and return the result.

    ``values`` are the Python options of ``loop/options.py``. ``keep`` stores the histories of an embedded run in
    memory. A ``brief`` run may omit histories that no index needs. While nodes start, ``starting`` is called with
    a text that lists the missing nodes. The test stops safely once ``interrupted()`` returns true or, if
    ``interrupted`` is None, on a signal. ``port`` is a port that a procedure has opened. ``preferred`` is the
    default engine. Raises ConfigError if the scenario or an option is invalid.
    """
    if interrupted is None:
        with orderly_stop(resend=True) as asked:
            values |= {"keep": keep, "brief": brief, "port": port, "preferred": preferred}
            values |= {"progress": progress, "interrupted": asked, "starting": starting}
            return run(scenario, overrides, **values)
    name = scenario if isinstance(scenario, (str, os.PathLike)) else "scenario"
    loaded = files.load(scenario, overrides, values.get("case") or "", values.get("rig") or "")
    loaded, values["engine"] = _of_one_engine(loaded, values.get("engine") or options.AUTO, preferred)
    chosen = options.run_options({"scenario": name} | values)
    chosen = chosen.changed(
        namespace=options.checked_namespace(chosen.namespace),
        record=str(Path(chosen.record).absolute()) if chosen.record else "",
        run_id=chosen.run_id or loaded.run_id(),
    )
    _check_handed(port, chosen)
    if loaded.updating is not None:
        from rths_nodes.analysis.stability.judgement import refuse_unstable

        refuse_unstable(loaded)
    embedded = _loop(loaded, chosen, port)  # raise errors before any node starts
    if chosen.record:
        bag.check_free(Path(chosen.record))
        kept = files.with_copied_files(loaded, Path(chosen.record), columns_only=True)
        if kept is not loaded:  # use the recording's copies of the history files
            loaded, embedded = kept, _loop(kept, chosen, port)
    samples = loaded.samples
    watch = (lambda sample: progress(sample, samples)) if progress else None, interrupted, starting
    loop = _engine(embedded, chosen, preferred if port is None else options.STAGES)
    if isinstance(loop, KernelLoop):
        loop.brief = brief and not chosen.record and loaded.soft_start is None
    started = time.monotonic()
    result = (
        _embedded(loop, chosen, keep, watch)
        if chosen.host == EMBEDDED
        else _nodes(loaded, chosen, watch, port, loop)
    )
    result.wall_s = time.monotonic() - started
    return result


def _of_one_engine(scenario: Scenario, engine: str, preferred: str) -> tuple[Scenario, str]:
    if engine == options.AUTO and preferred == options.AUTO:
        engine = scenario.engine
    named = EXECUTIVE if engine == EXECUTIVE else options.AUTO
    return (scenario if scenario.engine == named else override(scenario, {"engine": named})), engine


def _check_handed(port: Port | None, chosen: RunOptions) -> None:
    if port is None:
        return
    if chosen.engine == EXECUTIVE:
        raise ConfigError(
            f"engine = {EXECUTIVE!r}: a procedure already holds the session of the rig; set engine = python"
        )
    if chosen.host == options.PROCESSES:
        raise ConfigError(
            "host = 'processes': the port of a procedure cannot move to another process; use embedded or composed"
        )
    if chosen.actuator_nodes != options.ONE_NODE:
        raise ConfigError(
            f"actuator_nodes = {chosen.actuator_nodes}: a procedure permits only one actuator node; use one"
        )
    if port.paced != (chosen.pace == options.REALTIME):
        here = options.REALTIME if port.paced else options.LOCKSTEP
        raise ConfigError(f"pace = {chosen.pace!r}: must be {here}, the pace of the open port")


def _loop(scenario: Scenario, chosen: RunOptions, port: Port | None = None) -> Loop:
    faults = [faulty.parse(fault) for fault in chosen.faults]
    faulty.check(faults, scenario, chosen.host, chosen.pace, chosen.recorded)
    if faults and chosen.host == EMBEDDED:
        return checked_loop(scenario, lambda assembly: FaultyLoop(assembly, faults), port)
    return checked_loop(scenario, port=port)


def _engine(loop: Loop, chosen: RunOptions, preferred: str) -> Loop | KernelLoop | ExecutiveLoop:
    """Return the loop of the chosen engine.

    By default, a recorded test runs stage by stage, so that it is recorded while it runs. Raises ConfigError if a
    kernel is missing or cannot be translated.
    """
    engine = preferred if chosen.engine == options.AUTO else chosen.engine
    if engine == EXECUTIVE:
        return ExecutiveLoop(loop, chosen.pace == options.REALTIME, nodes=chosen.host != EMBEDDED)
    if engine == options.AUTO:
        engine = options.STAGES if chosen.record else options.KERNELS
    if engine == options.STAGES or chosen.host != EMBEDDED or chosen.faults:
        return loop
    kernels = loop_over_kernels(loop, engine == options.COMPILED)
    if isinstance(kernels, str) and chosen.engine in options.OVER_KERNELS:
        raise ConfigError(f"engine = {engine!r}: {kernels}; set engine = python")
    if isinstance(kernels, str):
        return loop
    if kernels.untranslatable and chosen.engine == options.COMPILED:
        reason = f"{kernels.untranslatable}; correct the kernel, or set engine = {options.KERNELS}"
        raise ConfigError(f"engine = {options.COMPILED!r}: {reason}")
    return kernels


def _result(scenario: Scenario, chosen: RunOptions, **fields: Any) -> RunResult:
    recording = Path(chosen.record) if chosen.record and Path(chosen.record).exists() else None
    how: dict[str, Any] = {"host": chosen.host, "pace": chosen.pace, "faults": chosen.faults}
    result = RunResult(scenario=scenario, wall_s=0.0, recording=recording, **how, **fields)
    result.exit_code = outcomes.valid(fields["exit_code"], result.late, result.samples)
    return result


def _embedded(loop: Loop | KernelLoop | ExecutiveLoop, chosen: RunOptions, keep: bool, watch: Watch) -> RunResult:
    scenario, engine = loop.scenario, options.STAGES if isinstance(loop, Loop) else loop.engine
    how = scenario, chosen.run_id, chosen.host, chosen.pace, chosen.faults
    library = "" if isinstance(loop, Loop) else loop.library
    about = information(*how, engine=engine, library=library, recorded=bool(chosen.record))
    collector = Collector(scenario, loop.assembly.names) if keep else None
    recording = None
    if chosen.record:
        writer = open_writer(chosen.record, recorded_topics(chosen.namespace, scenario), about)
        names, namespace = loop.assembly.names, chosen.namespace
        recording = RecordingSink(writer.write, writer.close, scenario, names, namespace, about)
    try:
        outcome = loop.run([sink for sink in (collector, recording) if sink is not None], *watch[:2])
    except BaseException:
        if recording is not None:
            recording.abandon("the run was aborted")
        raise
    code = outcomes.ExitCode.FAILED if outcome.failed else outcomes.of_state(outcome.state)
    if isinstance(loop, KernelLoop) and not loop.by_kernels:
        engine = options.STAGES
        about |= {"engine": engine}
        about.pop("library", None)
    if recording is not None:
        recording.close(outcome)
    about |= {"outcome": code.recorded, "reason": outcome.reason}
    results = {"metrics": outcome.metrics, "timing": outcome.timing, "integrator": outcome.integrator}
    return _result(
        scenario,
        chosen,
        outcome=code.recorded,
        reason=outcome.reason,
        samples=outcome.samples,
        exit_code=code,
        compensator=unflatten(flatten(outcome.compensator, "compensator"), "compensator"),
        **results,
        run=collector.run(information=about, **results) if collector else None,
        notes=[] if isinstance(loop, Loop) else list(loop.notes),
        engine=engine,
        assembly=loop.assembly.twin() if engine != options.STAGES else None,
        delays=loop.delays if isinstance(loop, KernelLoop) and loop.by_kernels and loop.brief else [],
    )


def _nodes(
    scenario: Scenario,
    chosen: RunOptions,
    watch: Watch,
    port: Port | None,
    loop: Loop | KernelLoop | ExecutiveLoop,
) -> RunResult:
    environment.check()
    from rths_nodes.ros.hosting import node_processes
    from rths_nodes.ros.nodes.followed import FollowedPort
    from rths_nodes.ros.transport.line import stop_address

    executive = loop if isinstance(loop, ExecutiveLoop) else None
    if executive is not None:
        port, executive.stops_at = FollowedPort(executive), stop_address(chosen.namespace)

    axes = node_processes.axes_with_nodes(scenario, chosen.actuator_nodes)
    console = chosen.host == options.PROCESSES or bool(chosen.separate)
    nodes = node_processes.describe(chosen, axes, console, scenario)
    if starting := watch[2]:  # report now: on a busy machine, nodes may start before the runner subscribes
        starting(node_processes.starting_words({node.peer: "" for node in nodes}))
    if chosen.host == options.PROCESSES:
        from rths_nodes.ros.hosting import processes

        result = processes.run(nodes, *watch)
    else:
        from rths_nodes.ros.hosting import composed

        result = composed.run(nodes, open_writer, *watch, chosen.separate, port)
    return _result(
        scenario,
        chosen,
        outcome=result.outcome,
        reason=result.reason,
        samples=result.sample,
        exit_code=result.exit_code,
        metrics=result.section("metrics"),
        compensator=result.section("compensator"),
        timing=gathered(result.numbers),
        integrator=result.section("integrator"),
        messages=_messages(result.section("recording")),
        notes=[*result.notes, *(executive.notes if executive else ())],
        engine=executive.engine if executive else "",
        actuator_nodes=chosen.actuator_nodes,
    )


def _messages(recording: Data) -> dict[str, object] | None:
    if not recording:
        return None
    counts = {name: {topic: round(count) for topic, count in recording[name].items()} for name in ("gaps", "lost")}
    silent = sorted(recording.get("silent", {}))
    complete = "broken_off" not in recording and not silent and not any(counts["gaps"].values())
    return counts | {"silent": silent, "complete": complete}
