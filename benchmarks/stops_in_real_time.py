# SPDX-License-Identifier: Apache-2.0
"""The hosts of stops.py that use a clock: nodes, and a test computer with an emulated rig over UDP."""

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
from stop_figures import Found, Row, found, stated
from stop_journal import Journal

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.emulation.emulator import Emulator
from rths_nodes.app.emulation.misbehaviour import Misbehaviour
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_TRIPPED
from rths_nodes.core.wire.plain import decode
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.loop.faults.kinds import parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording import bag
from rths_nodes.ros.nodes.tick_gate import LOOK_EVERY_NS

MEASURED = ("limit", "pressure", "interlock")
TRIES = 3
"""A run that has ended before its cause, as on a busy machine, is tried again so often."""
EARLIEST_S, LATEST_S = 0.5, 2.5
"""A cause comes so long after the first sample."""
MORE_S = 2.0
MATCHED_S = 0.2
"""The rig has found the publisher, too, so long after the publisher the rig."""
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
    "silence": "monitor",  # heartbeat.monitor, or that its process has died, which its runner may see first
    "kill": "",
    "pressure": "hydraulics",
    "interlock": "interlock",
}
LONGEST_S = 300.0


class Asker:
    """Asks every rig of the namespace to trip, by the topic that everybody hears; ``publisher`` publishes there.

    The middleware may take 3 s until the publisher has found a rig, and loses what is published before; a rig
    that is not simulated waits for that before it moves. So do the runs here, whose rig is simulated. Afterwards
    ``lost`` says that it had not been found, ``late`` that it was itself kept from publishing.
    """

    def __init__(self, publisher: Any, message: Any) -> None:
        self._publisher, self._message = publisher, message
        self._found: float | None = None
        self.lost = self.late = False

    def begin(self) -> None:
        """A new rig: it is to be found again."""
        self._found, self.lost, self.late = None, False, False

    def ready(self) -> bool:
        """True once the rig has been found for MATCHED_S; to be asked again and again."""
        now = time.monotonic()
        if self._found is None and self._publisher.get_subscription_count():
            self._found = now
        return self._found is not None and now - self._found >= MATCHED_S

    def __call__(self) -> None:
        self.lost = self.lost or not self.ready()
        begun = time.monotonic_ns()
        self._publisher.publish(self._message)
        self.late = time.monotonic_ns() - begun > LOOK_EVERY_NS


@contextmanager
def trip_request() -> Iterator[Asker]:
    """Somebody who asks rigs to trip."""
    from rclpy.node import Node

    from rths_nodes.msg import Trip
    from rths_nodes.ros.hosting.composed import ros_context

    with ros_context() as context:
        node = Node("somebody", context=context)
        yield Asker(node.create_publisher(Trip, "/rths/trip", 1), Trip())
        node.destroy_node()


def drawn(scenario: Scenario, random: np.random.Generator) -> tuple[int, str]:
    """Sample and axis of a cause."""
    sample = int(random.integers(round(EARLIEST_S / scenario.dt), round(LATEST_S / scenario.dt)))
    return sample, str(random.choice(list(scenario.axes)))


Once = Callable[[int, str], Found | str | None]
"""A run whose cause comes at this sample, to this axis; None where it had ended before."""


def filled(row: Row, once: Once, runs: int, seed: int, journal: Journal) -> Row:
    """The ``row`` with so many runs; those of the journal count."""
    for run in range(journal.read(row), runs):
        random = np.random.default_rng((seed, run))
        for _ in range(TRIES):
            one = once(*drawn(row.scenario, random))
            if one is not None:
                row.add(one)
                journal.keep(row, one)
                break
            row.early += 1
    return row


# -- nodes


def nodes(
    host: str, scenario: Scenario, causes: list[str], runs: int, seed: int, journal: Journal
) -> Iterator[Row]:
    """The hosts ``composed`` and ``processes``, behind them the simulator."""
    dt, silence = scenario.dt, scenario.bridge.longest(scenario.dt) + 1
    looked = math.ceil(LOOK_EVERY_NS * 1e-9 / dt)
    first = {"stop": looked + 2, "limit": 1, "kill": silence, "pressure": 1, "interlock": 1}
    first["silence"] = math.ceil((scenario.heartbeat.monitor + scenario.heartbeat.period) / dt)
    with forked_nodes(), trip_request() as stop:
        for cause in filter(first.__contains__, causes):
            row = Row(host, cause, scenario, stated(scenario, first[cause]))
            yield filled(row, partial(_nodes_once, host, scenario, cause, stop), runs, seed, journal)


def _nodes_once(
    host: str, scenario: Scenario, cause: str, stop: Asker, sample: int, axis: str
) -> Found | str | None:
    words = FAULTS.get(cause, "").format(sample * scenario.dt, axis, 3.0 * scenario.limits[axis].force)
    asked: list[int] = []
    stop.begin()

    def progress(now: int, _: int) -> None:
        if cause == "stop" and stop.ready() and now >= sample and not asked:
            asked.append(time.time_ns())
            stop()

    with tempfile.TemporaryDirectory(prefix="rths_stops_") as folder:
        record = Path(folder) / "run"
        given: dict[str, Any] = {"host": host, "pace": "realtime", "record": record, "progress": progress}
        done = hosts.run(
            scenario, [f"duration={LATEST_S + MORE_S}"], faults=[words] if words else [], keep=False, **given
        )
        if cause == "stop" and (not asked or stop.late):
            return None
        measurements = _measurements(record)
        if cause == "stop":
            stamps = [stamp for _, stamp in measurements]
            sample = int(np.searchsorted(stamps, asked[0], "right")) - 1
        applied = np.array([decode("Measurement", data)["command"] for data, _ in measurements])
        return _of_recording(record, cause, sample, done.reason, applied)


def _measurements(record: Path) -> list[tuple[bytes, int]]:
    """Bytes and stamps of the Measurements of a recording."""
    return [
        (data, stamp) for topic, data, stamp in bag.read(record).messages() if topic.endswith("/rths/measurement")
    ]


def _of_recording(record: Path, cause: str, sample: int, reason: str, applied: np.ndarray) -> Found | str | None:
    """Figures of a run that was recorded; None where it had ended before the cause, or by another one.

    ``applied`` are the commands that the rig was driven to, ``(samples, n_axes)`` m: where a Command came late, it
    went on without, and the recorded one was never sent.
    """
    run = rths_nodes.read(record)
    tripped = np.flatnonzero(run.flags & FLAG_TRIPPED)
    if not len(tripped):
        return f"sample {sample}: no stop: {reason}" if len(run.flags) > sample + 2 else None
    if tripped[0] < sample or REASONS[cause] not in reason:
        return None
    first = int(tripped[0]) + (cause in MEASURED) - sample
    one = found(run.scenario, applied, sample, first, len(run.flags) - 1 - sample)
    return replace(one, sharpest=math.nan) if cause == "interlock" else one  # there no command is taken any more


# -- a test computer, and an emulated rig


class Far(Emulator):
    """The emulated rig, whose active commands are kept; ``strike`` is called before state ``at`` is sent."""

    def __init__(self, scenario: Scenario, plans: list[Misbehaviour], at: int, strike: Callable[[], None]) -> None:
        self.path: list[list[float]] = []
        self.brakes: list[bool] = []
        self.places: list[np.ndarray] = []
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
        self.places.append(np.array(receiver.sensors.displacement[: len(receiver.command)]))


def udp(scenario: Scenario, causes: list[str], runs: int, seed: int, journal: Journal) -> Iterator[Row]:
    """The receiver stops by itself, or is led to rest by the test computer: then as late as a command may be."""
    far = [f"port={{type: udp, emulator: true, transport_samples: {TRANSPORT}}}", f"duration={LATEST_S + MORE_S}"]
    scenario = files.load(scenario.name, far)
    silent = TRANSPORT + scenario.bridge.longest(scenario.dt) + 1
    first = dict.fromkeys(("limit", "silence", "cable", "kill", "pressure"), silent) | {"interlock": 1}
    first["stop"] = silent + math.ceil(LOOK_EVERY_NS * 1e-9 / scenario.dt)
    with trip_request() as stop:
        for cause in causes:
            row = Row("udp", cause, scenario, stated(scenario, first[cause]))
            yield filled(row, partial(_udp_once, scenario, cause, stop), runs, seed, journal)


def _udp_once(scenario: Scenario, cause: str, stop: Asker, sample: int, axis: str) -> Found | str | None:
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
            said = computer[0].last_words()
        if stop.lost or stop.late:
            return None
        return _of_rig(far, scenario, cause, sample, record, said)


class Computer(Forked):
    """A test computer: ``rths`` with these ``words`` in a process of its own, in the folder ``place``.

    ``listens`` where it is to wait, before its first sample, until every publisher has found it.
    """

    def __init__(self, words: list[str], place: Path, listens: bool) -> None:
        self._output = place / "output"
        super().__init__(_rths, words, str(place), str(self._output), listens)

    def last_words(self) -> str:
        """The output of the process; one that does not end, as on a machine without time for it, is killed."""
        if self.wait(LONGEST_S) is None:
            self.kill()
            self.wait()
        return self._output.read_text("utf-8", "replace") if self._output.exists() else ""


def _rths(words: list[str], place: str, output: str, listens: bool) -> None:
    from rths_nodes.app import cli
    from rths_nodes.ros.nodes import arming

    if not listens:
        arming.FOUND_S = 0.0
    os.chdir(place)
    with open(output, "w") as told:
        os.dup2(told.fileno(), 1)
        os.dup2(told.fileno(), 2)
    sys.exit(cli.main(words))


def _computer(scenario: Scenario, port: int, cause: str, sample: int, axis: str, record: Path) -> Computer:
    words = ["run", scenario.name, "--host", "composed", "--pace", "realtime", "--record", str(record)]
    for value in (
        f"port={{type: udp, emulator: true, port: {port}, transport_samples: {TRANSPORT}}}",
        f"duration={scenario.duration}",
    ):
        words += ["--set", value]
    if cause == "limit":
        words += ["--fault", FAULTS[cause].format(sample * scenario.dt, axis, 3.0 * scenario.limits[axis].force)]
    return Computer(words, record.parent, listens=cause == "stop")


def _of_rig(far: Far, scenario: Scenario, cause: str, sample: int, record: Path, said: str) -> Found | str | None:
    """Figures of the commands that were active at the rig."""
    brakes = np.flatnonzero(far.brakes) + 1  # what is driven at a tick is active at the next state
    itself = int(brakes[0]) if len(brakes) else len(far.path)
    led = itself
    if cause in ("stop", "limit", "pressure"):
        with suppress(ConfigError):
            run = rths_nodes.read(record)
            tripped = np.flatnonzero(run.flags & FLAG_TRIPPED)
            if len(tripped) and REASONS[cause] in run.information.get("reason", ""):
                led = int(tripped[0]) + (cause != "stop") + TRANSPORT
    begun = min(itself, led)
    if begun <= sample or len(far.path) <= sample + 1:
        return None
    if begun >= len(far.path):
        return f"sample {sample}: no stop: {said.strip()[-200:]}"
    path = np.array(far.path)
    return found(scenario, path, sample, begun - sample).with_actuators(
        path[sample], np.array(far.places[sample - 1 :])
    )


def of(host: str) -> Callable[[Scenario, list[str], int, int, Journal], Iterator[Row]]:
    """The function that runs a host."""
    return udp if host == "udp" else partial(nodes, host)


assert all(parse(words.format(1.0, "axis", 1.0)) for words in FAULTS.values())
