# SPDX-License-Identifier: Apache-2.0
"""Hosts of stops.py that use a clock: nodes, and a test computer with an emulated rig over UDP."""

from __future__ import annotations

import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from forked_nodes import Forked, forked_nodes
from stop_figures import MEASURED, UDP, Figures, Row, figures_of, stated
from stop_journal import Journal

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.emulation import Emulator, Misbehaviour
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED
from rths_nodes.core.wire import decode
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.loop.faults import parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording import bag
from rths_nodes.ros.nodes.course import LOOK_EVERY_NS

TRIES = 3
"""Attempts for a run that ends before its cause, as on a busy machine."""
EARLIEST_S, LATEST_S = 0.5, 2.5
"""Range of the time from the first sample to the cause, s."""
DURATION_S = LATEST_S + 2.0
MATCHED_S = 0.2
"""Time from the discovery of the rig by the publisher until the rig has discovered the publisher, s."""
TRANSPORT = 2
FAULTS = {
    "limit": "sensor_spike@{0}:{1},force,{2}",
    "silence": "kill@{0}:monitor",
    "kill": "kill@{0}:compensator",
    "pressure": "hydraulics@{0}:off",
    "interlock": "interlock@{0}",
}
REASONS = {
    "stop": "trip requested",
    "limit": "limits.force",
    "silence": "monitor",  # heartbeat.monitor, or the death of its process, which the runner may detect first
    "kill": "",
    "pressure": "hydraulics",
    "interlock": "interlock",
}
LONGEST_S = 300.0
"""Timeout of a run, s."""


class TripRequest:
    """Request to trip, published to every rig of the namespace.

    The middleware may take 3 s to match publisher and rig, and drops earlier messages. A physical rig does not
    move before that; these runs, with a simulated rig, wait for it too. Afterwards, ``lost`` means that the rig
    was not matched, ``late`` that this process was delayed while publishing.
    """

    def __init__(self, publisher: Any, message: Any) -> None:
        self._publisher, self._message = publisher, message
        self.begin()

    def begin(self) -> None:
        """Wait for a new rig."""
        self._matched, self.lost, self.late = math.inf, False, False

    def ready(self) -> bool:
        """Return true if the rig has been matched for MATCHED_S. Must be polled."""
        now = time.monotonic()
        if math.isinf(self._matched) and self._publisher.get_subscription_count():
            self._matched = now
        return now - self._matched >= MATCHED_S

    def __call__(self) -> None:
        self.lost = self.lost or not self.ready()
        start = time.monotonic_ns()
        self._publisher.publish(self._message)
        self.late = time.monotonic_ns() - start > LOOK_EVERY_NS


@contextmanager
def trip_request() -> Iterator[TripRequest]:
    """Create a node that publishes trip requests."""
    from rclpy.node import Node

    from rths_nodes.msg import Trip
    from rths_nodes.ros.hosting.composed import ros_context

    with ros_context() as context:
        node = Node("stops", context=context)
        yield TripRequest(node.create_publisher(Trip, "/rths/trip", 1), Trip())
        node.destroy_node()


def drawn(scenario: Scenario, random: np.random.Generator) -> tuple[int, str]:
    """Draw sample and axis of a cause."""
    sample = int(random.integers(round(EARLIEST_S / scenario.dt), round(LATEST_S / scenario.dt)))
    return sample, str(random.choice(list(scenario.axes)))


Once = Callable[[int, str], Figures | str | None]
"""Makes a run with its cause at a sample and axis; returns None if the run ended before the cause."""


def filled(row: Row, once: Once, runs: int, seed: int, journal: Journal) -> Row:
    """Add runs to the ``row`` until it has ``runs``, including the runs in the journal."""
    for number in range(journal.read(row), runs):
        random = np.random.default_rng((seed, number))
        for _ in range(TRIES):
            run = once(*drawn(row.scenario, random))
            if run is not None:
                row.add(run)
                journal.keep(row, run)
                break
            row.early += 1
    return row


# -- nodes


def nodes(
    host: str, scenario: Scenario, causes: list[str], runs: int, seed: int, journal: Journal
) -> Iterator[Row]:
    """Run the host ``composed`` or ``processes`` with the simulator."""
    dt, silence = scenario.dt, scenario.bridge.longest(scenario.dt) + 1
    polling = math.ceil(LOOK_EVERY_NS * 1e-9 / dt)
    first = {"stop": polling + 2, "limit": 1, "kill": silence, "pressure": 1, "interlock": 1}
    first["silence"] = math.ceil((scenario.heartbeat.monitor + scenario.heartbeat.period) / dt)
    with forked_nodes(), trip_request() as stop:
        for cause in filter(first.__contains__, causes):
            row = Row(host, cause, scenario, stated(scenario, first[cause]))
            yield filled(row, partial(_nodes_once, host, scenario, cause, stop), runs, seed, journal)


def _nodes_once(
    host: str, scenario: Scenario, cause: str, stop: TripRequest, sample: int, axis: str
) -> Figures | str | None:
    requested: list[int] = []
    stop.begin()

    def progress(now: int, _: int) -> None:
        if cause == "stop" and stop.ready() and now >= sample and not requested:
            requested.append(time.time_ns())
            stop()

    with tempfile.TemporaryDirectory(prefix="rths_stops_") as folder:
        record = Path(folder) / "run"
        options: dict[str, Any] = {"host": host, "pace": "realtime", "record": record, "progress": progress}
        faults = [_fault(scenario, cause, sample, axis)] if cause in FAULTS else []
        result = hosts.run(scenario, [f"duration={DURATION_S}"], faults=faults, keep=False, **options)
        if cause == "stop" and (not requested or stop.late):
            return None
        messages = bag.read(record).messages()
        measurements = [(data, stamp) for topic, data, stamp in messages if topic.endswith("/rths/measurement")]
        if cause == "stop":
            stamps = [stamp for _, stamp in measurements]
            sample = int(np.searchsorted(stamps, requested[0], "right")) - 1
        applied = np.array([decode("Measurement", data)["command"] for data, _ in measurements])
        return _of_recording(record, cause, sample, result.reason, applied)


def _fault(scenario: Scenario, cause: str, sample: int, axis: str) -> str:
    return FAULTS[cause].format(sample * scenario.dt, axis, 3.0 * scenario.limits[axis].force)


def _of_recording(record: Path, cause: str, sample: int, reason: str, applied: np.ndarray) -> Figures | str | None:
    """Return the figures of a recorded run; None if it ended before the cause, or for another reason.

    ``applied`` are the commands that drove the rig, ``(samples, n_axes)`` (m). They differ from the recorded
    Commands if one was late: the rig then continued without it.
    """
    run = rths_nodes.read(record)
    tripped = np.flatnonzero(run.flags & FLAG_TRIPPED)
    if not len(tripped):
        return f"sample {sample}: no stop: {reason}" if len(run.flags) > sample + 2 else None
    if tripped[0] < sample or REASONS[cause] not in reason:
        return None
    first = int(tripped[0]) + (cause in MEASURED) - sample
    figures = figures_of(run.scenario, applied, sample, first, len(run.flags) - 1 - sample)
    # the rig takes no commands after the interlock has opened
    return replace(figures, sharpest=math.nan) if cause == "interlock" else figures


# -- a test computer, and an emulated rig


class Far(Emulator):
    """Emulated rig that stores its active commands. Calls ``strike`` before it sends state ``at``."""

    def __init__(self, scenario: Scenario, plans: list[Misbehaviour], at: int, strike: Callable[[], None]) -> None:
        self.path: list[list[float]] = []
        self.brakes: list[bool] = []
        self.positions: list[np.ndarray] = []
        self._at, self._strike = at, strike
        super().__init__(scenario, 0, own_clock=True, plans=plans)

    def _switch(self, sample: int) -> None:
        if sample == self._at:
            self._strike()
        super()._switch(sample)

    def _drive(self) -> None:
        receiver = self._receiver
        if not self.path:
            self.path.append(receiver.command)
        super()._drive()
        self.path.append(receiver.command)
        self.brakes.append(receiver.state_number >= datagrams.BRAKING or receiver.missing > self._bridged)
        self.positions.append(np.array(receiver.sensors.displacement[: len(receiver.command)]))


def udp(scenario: Scenario, causes: list[str], runs: int, seed: int, journal: Journal) -> Iterator[Row]:
    """Run a test computer with an emulated rig.

    The receiver stops by itself or is braked by the test computer, whose commands may be late by a full bridge.
    """
    scenario = files.load(scenario.name, [UDP.format(TRANSPORT), f"duration={DURATION_S}"])
    silent = TRANSPORT + scenario.bridge.longest(scenario.dt) + 1
    first = dict.fromkeys(("limit", "silence", "cable", "kill", "pressure"), silent) | {"interlock": 1}
    first["stop"] = silent + math.ceil(LOOK_EVERY_NS * 1e-9 / scenario.dt)
    with trip_request() as stop:
        for cause in causes:
            row = Row("udp", cause, scenario, stated(scenario, first[cause]))
            yield filled(row, partial(_udp_once, scenario, cause, stop), runs, seed, journal)


def _udp_once(scenario: Scenario, cause: str, stop: TripRequest, sample: int, axis: str) -> Figures | str | None:
    plans = {
        "cable": [Misbehaviour("lose", sample, 1_000_000), Misbehaviour("mute", sample, 1_000_000)],
        "pressure": [Misbehaviour("hydraulics", sample, 0)],
        "interlock": [Misbehaviour("interlock", sample, 0)],
    }
    computer: list[Computer] = []
    strikes: dict[str, Callable[[], None]] = {
        "kill": lambda: computer[0].send_signal(signal.SIGKILL),
        "silence": lambda: computer[0].send_signal(signal.SIGSTOP),
        "stop": stop,
    }
    far = Far(scenario, plans.get(cause, []), sample, strikes.get(cause, lambda: None))
    with tempfile.TemporaryDirectory(prefix="rths_stops_") as folder:
        record = Path(folder) / "run"
        computer.append(_computer(scenario, far.address[1], cause, sample, axis, record))
        end = time.monotonic() + LONGEST_S
        stop.begin()

        def ended() -> bool:
            stop.ready()
            return time.monotonic() > end or (not far.path and computer[0].returncode is not None)

        try:
            far.serve(ended)
        finally:
            far.close()
            computer[0].send_signal(signal.SIGKILL if cause in ("kill", "silence") else signal.SIGCONT)
            output = computer[0].output()
        if stop.lost or stop.late:
            return None
        return _of_rig(far, scenario, cause, sample, record, output)


class Computer(Forked):
    """Test computer: ``rths`` with ``arguments`` in its own process, in ``folder``.

    With ``matched`` it waits before the first sample until all publishers have discovered it.
    """

    def __init__(self, arguments: list[str], folder: Path, matched: bool) -> None:
        self._output = folder / "output"
        super().__init__(_rths, arguments, str(folder), str(self._output), matched)

    def output(self) -> str:
        """Wait for the process and return its output. Kill the process after LONGEST_S."""
        if self.wait(LONGEST_S) is None:
            self.kill()
            self.wait()
        return self._output.read_text("utf-8", "replace") if self._output.exists() else ""


def _rths(arguments: list[str], folder: str, output: str, matched: bool) -> None:
    from rths_nodes.app import cli
    from rths_nodes.ros.nodes import course

    if not matched:
        course.FOUND_S = 0.0
    os.chdir(folder)
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.exit(cli.main(arguments))


def _computer(scenario: Scenario, port: int, cause: str, sample: int, axis: str, record: Path) -> Computer:
    arguments = ["run", scenario.name, "--host", "composed", "--pace", "realtime", "--record", str(record)]
    arguments += ["--set", UDP.format(f"{TRANSPORT}, port: {port}"), "--set", f"duration={scenario.duration}"]
    if cause == "limit":
        arguments += ["--fault", _fault(scenario, cause, sample, axis)]
    return Computer(arguments, record.parent, matched=cause == "stop")


def _of_rig(
    far: Far, scenario: Scenario, cause: str, sample: int, record: Path, output: str
) -> Figures | str | None:
    """Return the figures of the commands that were active at the rig; None if it stopped before the cause."""
    brakes = np.flatnonzero(far.brakes) + 1  # a command set at a tick is active at the next state
    by_receiver = int(brakes[0]) if len(brakes) else len(far.path)
    by_computer = by_receiver
    if cause in ("stop", "limit", "pressure"):
        with suppress(ConfigError):
            run = rths_nodes.read(record)
            tripped = np.flatnonzero(run.flags & FLAG_TRIPPED)
            if len(tripped) and REASONS[cause] in run.information.get("reason", ""):
                by_computer = int(tripped[0]) + (cause != "stop") + TRANSPORT
    first = min(by_receiver, by_computer)
    if first <= sample or len(far.path) <= sample + 1:
        return None
    if first >= len(far.path):
        return f"sample {sample}: no stop: {output.strip()[-200:]}"
    path, positions = np.array(far.path), np.array(far.positions[sample - 1 :])
    return figures_of(scenario, path, sample, first - sample).with_actuators(path[sample], positions)


assert all(parse(fault.format(1.0, "axis", 1.0)) for fault in FAULTS.values())
