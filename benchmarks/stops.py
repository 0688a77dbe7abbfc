# SPDX-License-Identifier: Apache-2.0
"""Time until a rig brakes and rests, and its travel, by cause and host: python benchmarks/stops.py --runs 1000

Makes the table of doc/measured/stops.md (`--markdown`). Each run is a shipped scenario in which the cause occurs
at a random time: a stop request, a force beyond its limit, missing Commands, a silent monitor, a killed node or
test computer, lost datagrams, loss of pressure, or an open interlock. The commands to the rig are measured from
the cause on, in samples of the rig's own counter, and compared with the values that the package states:
excess_travel and the time of a common stop (`rths check`), bridge.max_bridge, transport_samples,
heartbeat.monitor, and the polling interval of the actuator node. The exit code is 1 if a run exceeded a stated
value or the declared deceleration, or left the common line.

    embedded      the loop in one process; each run continues from a copy of the process at its random time
    receiver      the C receiver, which receives the commands of a recorded test as datagrams
    composed      nodes in one process, in real time
    processes     nodes in separate processes, in real time
    udp           a test computer in real time (composed) and an emulated rig with its own clock, which is measured

The first two hosts use no clock. The other hosts take some seconds per run and make `--real-time-runs` runs; with
`--journal`, the runs of several calls accumulate.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from stop_figures import HEAD, Copies, Found, Row, found, stated
from stop_journal import Journal

from rths_nodes.app import hosts
from rths_nodes.app.emulation.emulator import Emulator
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED, Array, Command, Measurement
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head
from rths_nodes.loop.faults.embedded import FaultyLoop
from rths_nodes.loop.faults.kinds import parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

SCENARIOS = {"chen_ricles_2010": (), "two_actuator_coupler": ("ground_motion.scale=1.9",)}
"""One axis, and two of one specimen, moved nearly as fast as their limits allow."""
CAUSES = ("stop", "limit", "silence", "cable", "kill", "pressure", "interlock")
MEASURED = ("limit", "pressure", "interlock")
"""The rig stage finds these in a Measurement, which is flagged; the next Command brakes."""
IN_PROCESS, REAL_TIME = ("embedded", "receiver"), ("composed", "processes", "udp")
UDP = "port={type: udp, emulator: true, transport_samples: %d}"
TRANSPORT = 1
SETTLED_S = 0.2
"""An actuator is where its command is by then."""
FAST_SHARE = 0.1
"""Every second moment is one of the fastest samples, so many of them."""


def moments_of(scenario: Scenario, commands: Array, runs: int, random: np.random.Generator) -> list[int]:
    """Samples at which causes come: every second one of the fastest, the others any."""
    last = len(commands) - 2 * scenario.samples_per_step - scenario.bridge.longest(scenario.dt) - 1
    changes = np.array([each.velocity * scenario.dt for each in scenario.limits.values()])
    speed = np.abs(np.diff(commands[: last + 1], axis=0) / changes).max(axis=1)
    fastest = np.argsort(speed)[-max(1, round(FAST_SHARE * last)) :] + 1
    fastest = fastest[fastest > 1]
    drawn = [random.choice(fastest) if run % 2 else random.integers(2, last + 1) for run in range(runs)]
    return sorted(int(each) for each in drawn)


# -- the loop in one process


class Watched:
    """A sink: applied commands, flags, true displacements; from each moment on a copy goes on with a cause."""

    def __init__(self, loop: FaultyLoop, causes: dict[int, list[str]], copies: Copies, seed: int) -> None:
        self._loop, self._causes, self._copies, self._seed = loop, causes, copies, seed
        self.path: list[Array] = []
        self.flags: list[int] = []
        self.true: list[Array] = []
        self.asked = False

    def measurement(self, measured: Measurement) -> None:
        self.path.append(measured.command.copy())
        self.flags.append(measured.flags)
        for number, cause in enumerate(
            self._causes.get(measured.sample, ()) if self._copies.inside is None else ()
        ):
            if self._copies.split((cause, measured.sample)):
                self._put_in(cause, measured.sample, np.random.default_rng((self._seed, measured.sample, number)))
                return

    def truth(self, true: Measurement) -> None:
        self.true.append(true.displacement.copy())

    def target(self, target: Any) -> None: ...

    def command(self, command: Any) -> None: ...

    def state(self, sample: int, values: Any) -> None: ...

    def _put_in(self, cause: str, sample: int, random: np.random.Generator) -> None:
        if cause == "stop":
            self.asked = True
            return
        scenario = self._loop.scenario
        axis = str(random.choice(list(scenario.axes)))
        now, next_one = sample * scenario.dt, (sample + 1) * scenario.dt
        words = {
            "limit": f"sensor_spike@{next_one}:{axis},force,{3.0 * scenario.limits[axis].force}",
            "silence": f"drop@{now}:{random.choice(('target', 'command'))},1000000",
            "pressure": f"hydraulics@{next_one}:off",
            "interlock": f"interlock@{next_one}",
        }
        self._loop.put_in([parse(words[cause])])

    def found(self, cause: str, sample: int) -> Found | str:
        """Figures of a copy, once its run is over; words where no stop has come of it."""
        flags, path, scenario = np.array(self.flags), np.array(self.path), self._loop.scenario
        tripped = np.flatnonzero(flags & FLAG_TRIPPED)
        if not len(tripped):
            return f"sample {sample}: no stop"
        at = sample + (cause in MEASURED)
        if cause == "silence":  # from the last sample that had its Target and Command
            at = sample + int(np.flatnonzero(flags[sample + 1 :] & (FLAG_BRIDGED | FLAG_TRIPPED))[0])
        run = found(scenario, path, at, int(tripped[0]) + (cause in MEASURED) - at, len(flags) - 1 - at)
        run = run.with_actuators(path[at], np.array([*self.true[at:], *self._settled()]))
        return (
            replace(run, sharpest=math.nan) if cause == "interlock" else run
        )  # there no command is taken any more

    def _settled(self) -> Iterator[Array]:
        """Where the actuators go behind their last command."""
        port, last = self._loop.rig.port, self.path[-1]
        for _ in range(round(SETTLED_S / self._loop.scenario.dt)):
            port.write(Command(port.wait_tick(), last, last, np.zeros(len(port.auxiliary_inputs))))
            true = port.truth()
            if true is not None:
                yield true.displacement


def embedded(scenario: Scenario, causes: list[str], runs: int, seed: int, at_once: int = 1) -> Iterator[Row]:
    """The loop in one process, from copies of it."""
    per_step, bridged = scenario.samples_per_step, scenario.bridge.longest(scenario.dt)
    first = {"stop": per_step, "limit": 1, "silence": bridged + 1, "pressure": 1, "interlock": 1}
    rows = {
        each: Row("embedded", each, scenario, stated(scenario, first[each])) for each in causes if each in first
    }
    commands = hosts.run(scenario).read().command
    random, copies = np.random.default_rng(seed), Copies(at_once)
    at = {cause: moments_of(scenario, commands, runs, random) for cause in rows}
    loop = FaultyLoop(Assembly(scenario), ())
    watched = Watched(loop, by_moment(at), copies, seed)

    def run() -> None:
        loop.run([watched], interrupted=lambda: watched.asked)
        if copies.inside is not None:
            copies.finish(watched.found(*copies.inside))

    return filled(rows, copies, run)


def by_moment(moments: Mapping[str, Iterable[int]]) -> dict[int, list[str]]:
    """Causes by the sample at which they are put in, from the ``moments`` of each."""
    at: dict[int, list[str]] = defaultdict(list)
    for cause, samples in moments.items():
        for sample in samples:
            at[sample].append(cause)
    return at


def filled(rows: dict[str, Row], copies: Copies, run: Callable[[], None]) -> Iterator[Row]:
    """The ``rows`` by cause, with what the ``copies`` have found that ``run`` makes."""
    try:
        run()
    except BaseException:
        copies.failed()
        raise
    for (cause, moment), run in copies.wait():
        rows[cause].add(run, f" at sample {moment}")
    yield from rows.values()


# -- the receiver


class Replay:
    """The receiver of the emulated rig of ``scenario``; it gets ``commands`` (m, by sample) by datagrams."""

    def __init__(self, scenario: Scenario, commands: Array, causes: dict[int, list[str]], copies: Copies) -> None:
        emulator = Emulator(scenario, 0, own_clock=True)
        emulator.close()
        self.receiver, self._bridged = emulator._receiver, emulator._bridged
        self._scenario, self._commands, self._causes, self._copies = scenario, commands, causes, copies
        self._limits, self.persistence = emulator._limits, emulator._persistence
        period = round(scenario.dt * 1e9)
        flags = datagrams.EMULATOR
        self._head = Head(0, commands.shape[1], 1, period=period, flags=flags, transport=TRANSPORT)
        self.path = [self.receiver.command]

    def run(self, seed: int) -> None:
        """The whole test, with a copy that goes on to its end from each cause."""
        for kind in (datagrams.OPEN, datagrams.BEGIN):
            self._send(kind)
        for sample in range(len(self._commands)):
            if sample:
                now, before = self._commands[sample], self._commands[sample - 1]
                slope = ((now - before) / self._scenario.dt).tolist()
                self._send(datagrams.COMMAND, sample, datagrams.command_rows(now.tolist(), slope, np.zeros(0)))
            for number, cause in enumerate(self._causes.get(sample, ())):
                if self._copies.split((cause, sample)):
                    self._copies.finish(
                        self._stopped(cause, sample, np.random.default_rng((seed, sample, number)))
                    )
            self._tick()

    def _send(self, kind: int, counter: int = 0, rows: bytes = b"") -> None:
        self._head.kind, self._head.counter = kind, counter
        assert self.receiver.receive(datagrams.packed(self._head, rows)) == "taken"

    def _tick(self) -> bool:
        """One tick; whether it brakes."""
        n = len(self.receiver.command)
        for axis in range(n):
            if not self._stuck:
                self.receiver.sensors.displacement[axis] = self.receiver.command[axis]
        self.receiver.state()
        self.receiver.drive()
        self.path.append(self.receiver.command)
        return self.receiver.state_number >= datagrams.BRAKING or self.receiver.missing > self._bridged

    _stuck = False

    def _stopped(self, cause: str, sample: int, random: np.random.Generator) -> Found:
        """Figures of ``cause``, put in before state ``sample`` is sent."""
        receiver, axis = self.receiver, int(random.integers(self._commands.shape[1]))
        if cause == "stop":
            self._send(datagrams.CLOSE, sample)
        elif cause == "interlock":
            receiver.sensors.interlock = 2
        elif cause == "limit" and random.integers(2):
            receiver.sensors.force[axis] = 2.0 * self._limits[axis].force
        elif cause == "limit":
            self._stuck = True
            receiver.sensors.displacement[axis] = receiver.command[axis] + 3.0 * self._limits[axis].error
        brakes = [self._tick() for _ in range(2 * receiver.rest_samples)]
        return found(self._scenario, np.array(self.path), sample, brakes.index(True) + 1)


def receiver(scenario: Scenario, causes: list[str], runs: int, seed: int, at_once: int = 1) -> Iterator[Row]:
    """The C receiver. Without cable, with a dead or a silent test computer it is the same: no command comes."""
    commands = hosts.run(scenario).read().command
    far = files.load(scenario.name, [*SCENARIOS[scenario.name], UDP % TRANSPORT, f"duration={scenario.duration}"])
    copies, random = Copies(at_once), np.random.default_rng(seed)
    at: dict[int, list[str]] = {}
    replay = Replay(far, commands, at, copies)
    silent = TRANSPORT + replay._bridged + 1
    persistence = replay.persistence
    first = {"stop": 1, "limit": persistence, "interlock": 1} | dict.fromkeys(("silence", "cable", "kill"), silent)
    rows = {each: Row("receiver", each, far, stated(far, first[each])) for each in causes if each in first}
    at |= by_moment({cause: moments_of(far, commands, runs, random) for cause in rows})
    return filled(rows, copies, lambda: replay.run(seed))


Host = Callable[[Scenario, list[str], int, int, Journal], Iterator[Row]]


def tell(rows: list[Row], markdown: bool) -> int:
    """Print the table and what is wrong; the exit code."""
    table = [HEAD, *(row.cells() for row in rows)]
    if markdown:
        table.insert(1, ["---"] * len(HEAD))
        print(*(f"| {' | '.join(cells)} |" for cells in table), sep="\n")
    else:
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        print(*("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in table), sep="\n")
    for row in rows:
        if row.early:
            print(f"{row.host}, {row.cause}: {row.early} further runs had ended before the cause")
    wrong = [words for row in rows for words in row.wrong]
    print(*wrong[:50], sep="\n", end="\n" if wrong else "")
    print(f"{len(wrong)} beyond what is stated" if wrong else "none beyond what is stated (stated / largest)")
    return int(bool(wrong))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="of each cause; default: %(default)d")
    parser.add_argument(
        "--real-time-runs", type=int, default=30, help="of those in real time; default: %(default)d"
    )
    parser.add_argument(
        "--journal", type=Path, help="of those in real time: runs made before count, new ones are kept"
    )
    parser.add_argument("--hosts", nargs="+", choices=(*IN_PROCESS, *REAL_TIME), default=(*IN_PROCESS, *REAL_TIME))
    parser.add_argument("--causes", nargs="+", choices=CAUSES, default=CAUSES)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--seconds", type=float, default=12.0, help="of a test; default: %(default)g")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--at-once", type=int, default=os.cpu_count() or 1, help="copies of a test; default: %(default)d"
    )
    parser.add_argument("--markdown", action="store_true", help="as the table of doc/measured/stops.md")
    options = parser.parse_args()
    rows: list[Row] = []
    for host in options.hosts:
        for name in options.scenarios if host in IN_PROCESS else options.scenarios[:1]:
            scenario = files.load(name, [*SCENARIOS[name], f"duration={options.seconds}"])
            if host in IN_PROCESS:
                run = partial({"embedded": embedded, "receiver": receiver}[host], at_once=options.at_once)
                rows += run(scenario, list(options.causes), options.runs, options.seed)
            else:
                made = scenario, list(options.causes), options.real_time_runs, options.seed
                rows += real_time(host)(*made, Journal(options.journal))
    return tell(rows, options.markdown)


def real_time(host: str) -> Host:
    """The hosts that need ROS, or a network."""
    import stops_in_real_time

    return stops_in_real_time.of(host)


if __name__ == "__main__":
    sys.exit(main())
