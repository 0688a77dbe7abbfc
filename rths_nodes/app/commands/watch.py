# SPDX-License-Identifier: Apache-2.0
"""``rths watch``: watch a test with separate sensors on another computer, and send pulses to an interlock.

The pulses also end if the process hangs.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rths_nodes.app.commands import arguments
from rths_nodes.app.commands.terminal import RUNS
from rths_nodes.app.streams import Printer
from rths_nodes.core.errors import ConfigError, printable
from rths_nodes.core.samples import MODE_FORCE
from rths_nodes.laboratory.corrections import UNCORRECTED
from rths_nodes.laboratory.ports.watcher_sensors import OwnSensors
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.options import NAMESPACE
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.realtime import ABOVE, real_time
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import rig_kind
from rths_nodes.loop.supervision.states import State
from rths_nodes.loop.watch import Sample, Watch, pulses
from rths_nodes.ros import environment

TURNS = 2
"""Minimum number of cycles of the watch loop per pulse period."""
LAST_S = 1.0
"""Timeout for printing the last lines, s."""


def watch_arguments(add: arguments.Arguments) -> None:
    add("rig", "name of a shipped rig file, or path of a YAML file, with the section watch")
    add("--namespace NAME", "namespace of rths test --socket", NAMESPACE)
    add("--out FILE", f"file (JSON lines) to which events are appended; default: {RUNS}/watch_<date>.jsonl")
    add.removed(record="renamed; use --out")


def watch_command(options: arguments.Options) -> int:
    rig = files.load_rig(options.rig)
    if rig.watch is None:
        raise ConfigError(
            f"{options.rig}: watch: missing; the sensors and expectations of a watcher have no defaults"
        )
    environment.check()
    from rths_nodes.ros.hosting.listener import WatchListener

    section = rig.watch
    path = Path(options.out or f"{RUNS}/watch_{datetime.now(UTC):%Y%m%d_%H%M%S}.jsonl")
    channels = [(axis.displacement, axis.force) for axis in section.axes.values()]
    with ExitStack() as stack:
        tell = stack.enter_context(watch_record(path, f"{rig.name} ({rig_kind(rig)})"))
        sensors = stack.enter_context(closing(OwnSensors(section.sensors.address, section.sensors.port, channels)))
        listener = stack.enter_context(closing(WatchListener(options.namespace, f"watch_{os.getpid()}")))
        loop = WatchLoop(rig, sensors, listener.messages, tell)
        where = f"{section.pulse.address}:{section.pulse.port}"
        waits = f"the watcher waits for its own sensors; pulses go to {where}, and events are appended to {path}"
        tell("waits", waits, rig_kind=rig_kind(rig))
        with orderly_stop() as interrupted:
            listener.start()
            with real_time(True, ABOVE) as refused:
                for problem in refused:
                    tell("note", problem)
                reason = loop.run(interrupted)
        counts = {"pulses": loop.pulses, "tolerance_used": round(loop.watch.used, 3), **sensors.counts}
        tell("ended", f"THE PULSE HAS ENDED: {reason or 'ended by the operator'}", **counts)
    return ExitCode.TRIPPED if reason else ExitCode.FINISHED


class WatchLoop:
    """Compares ``sensors`` with the ``messages`` of a test, and sends pulses while they agree.

    ``tell(event, text)`` reports events. Raises ConfigError if the receiver's host is unknown.
    """

    def __init__(
        self,
        rig: RigFile,
        sensors: OwnSensors,
        messages: deque[tuple[float, str, Any]],
        tell: Callable[[str, str], None],
    ) -> None:
        assert rig.watch is not None
        assert rig.servo_rate is not None
        self.watch, self._rig, self._state = Watch(rig.watch, rig.servo_rate), rig, -1
        self._places: list[tuple[int, int | None, bool]] = []
        """For each axis: index in a message, index of the load-cell channel, and whether it has force control. The
        force in the message is used if the second index is None."""
        self._sensors, self._received, self._tell = sensors, messages, tell
        pulse = rig.watch.pulse
        self._period, self._pulses = pulse.period, pulses(pulse.period)
        self.pulses = 0
        try:
            self._far = socket.gethostbyname(pulse.address), pulse.port
        except OSError as error:
            raise ConfigError(
                f"watch.pulse.address = {pulse.address!r}: unknown host ({error.strerror})"
            ) from error
        self._due = 0.0

    def run(self, ended: Callable[[], bool]) -> str:
        """Send pulses until the watch decides to end them, or until ``ended()`` is true.

        Return the watch's reason, or an empty string if ``ended()`` is true.
        """
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            while not ended():
                select.select([self._sensors], [], [], self._period / TURNS)
                for counter, displacement, force in self._sensors.received():
                    self.watch.sense(Sample(time.monotonic(), counter, displacement, force))
                self._receive()
                if reason := self.watch.judge(time.monotonic()):
                    return reason
                self._pulse(out)
        return ""

    def _receive(self) -> None:
        while self._received:
            at, topic, message = self._received.popleft()
            if topic == "rig_state":
                self.take_measured(at, message)
            elif self.take_state(message):
                names = {int(state): state.name for state in State}
                self._tell("told", f"{names.get(message.state, message.state)}: {message.reason}".rstrip(": "))

    def take_state(self, message: Any) -> bool:
        """Store the state of the test. Return true if the state has changed."""
        try:
            self._understand(list(message.axis_names), list(message.auxiliary_names), message.servo_rate)
        except ConfigError as error:
            self.watch.end(f"the test runs on another rig: {'; '.join(error.problems)}")
        changed = bool(message.state != self._state)
        self._state = message.state
        if changed:
            self.watch.take_state(message.state)
        return changed

    def _understand(self, axes: list[str], auxiliary: list[str], rate: float) -> None:
        if rate != self._rig.servo_rate:
            raise ConfigError(f"servo_rate = {rate:g} Hz: must be {self._rig.servo_rate:g} Hz, as in the rig file")
        scenario_of = {axis: name for name, axis in self._rig.axis_of(axes).items()}
        channels = {text.partition(" [")[0]: index for index, text in enumerate(auxiliary)}
        self._places = []
        for axis, section in self._rig.axes.items():
            name = scenario_of[axis]
            channel = channels.get(f"{UNCORRECTED}{name}")
            self._places.append((axes.index(name), channel, section.force_control is not None))

    def take_measured(self, at: float, message: Any) -> None:
        if not self._places:
            return  # the axes of the test are not known yet
        n, auxiliary = len(self._places), message.auxiliary
        if any(len(values) != n for values in (message.displacement, message.force, message.command)):
            self.watch.end(f"the test publishes {len(message.displacement)} axes, but must publish {n}")
            return
        if any(channel is not None and channel >= len(auxiliary) for _, channel, _ in self._places):
            self.watch.end("the test does not publish the readings of its load cells")
            return
        modes = list(message.control_mode) or [0] * n
        rows = []
        for index, channel, by_force in self._places:
            forced = by_force and index < len(modes) and modes[index] == MODE_FORCE
            command = message.command[index]
            force = message.force[index] if channel is None else auxiliary[channel]
            sent = math.nan if forced else command if math.isfinite(command) else math.inf
            rows.append((message.displacement[index], force, sent))
        self.watch.receive(Sample(at, message.sample, *zip(*rows, strict=True)))

    def _pulse(self, out: socket.socket) -> None:
        now = time.monotonic()
        if not self.watch.ready or now < self._due:
            return
        self.pulses += 1
        with suppress(OSError):  # treat the pulse as lost: without pulses the interlock opens
            out.sendto(next(self._pulses), self._far)
        self._due = max(self._due + self._period, now)
        if self.pulses == 1:
            finding = "no test is received; the rig is at rest" if self._state < 0 else "sensors and test agree"
            self._tell("begins", f"{finding}: the pulse begins")


@contextmanager
def watch_record(path: Path, name: str) -> Iterator[Callable[..., None]]:
    """Provide a function ``(event, text)`` that appends the event to a file and prints it.

    Two threads write and print, without delaying the pulses or each other. Raises ConfigError if the file cannot
    be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {path}: cannot be written ({error.strerror})") from None
    terminal, failed = Printer(), False

    def write(row: dict[str, object]) -> None:
        nonlocal failed
        terminal.say(f"{name}: {printable(str(row['words']))}")
        try:
            if not failed:
                file.write(json.dumps(row) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            failed = True
            terminal.say(f"{name}: the record can no longer be written: {error.strerror}")

    def tell(event: str, text: str, **further: object) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        rows.say({"time": now, "event": event, "words": text, **further})

    rows = Printer(write)
    try:
        yield tell
    finally:
        rows.wait()
        terminal.wait(LAST_S)
        with suppress(OSError):  # already reported at the terminal
            file.close()
