# SPDX-License-Identifier: Apache-2.0
"""Time until a rig brakes and rests, and its travel, by cause and host: python benchmarks/stops.py --runs 1000

Makes the table of doc/measured/stops.md (`--markdown`). Each run is a shipped scenario in which the cause occurs
at a random time: a stop request, a force beyond its limit, missing Commands, a silent monitor, a killed node or
test computer, lost datagrams, loss of pressure, or an open interlock. The commands to the rig are measured from
the cause on, in samples of the rig's counter, and compared with the stated values: excess_travel and the time of a
common stop (`rths check`), bridge.max_bridge, transport_samples, heartbeat.monitor, and the polling interval of
the actuator node. The exit code is 1 if a run exceeded a stated value or the declared deceleration, or left the
common line.

    embedded      the loop in one process; each run continues in a copy of the process from its random time
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

import numpy as np
from stop_figures import HEAD, MEASURED, UDP, Copies, Figures, Row, figures_of, stated
from stop_journal import Journal

from rths_nodes.app import hosts
from rths_nodes.app.emulation import Emulator
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED, Array, Command, Measurement
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head
from rths_nodes.loop.embedded import Sink
from rths_nodes.loop.faults import FaultyLoop, parse
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

SCENARIOS = {"chen_ricles_2010": (), "two_actuator_coupler": ("ground_motion.scale=1.9",)}
"""Overrides by scenario: one axis, and two axes of one specimen that nearly reach their velocity limits."""
CAUSES = ("stop", "limit", "silence", "cable", "kill", "pressure", "interlock")
IN_PROCESS, REAL_TIME = ("embedded", "receiver"), ("composed", "processes", "udp")
TRANSPORT = 1
SETTLED_S = 0.2
"""Time after which an actuator has reached its command, s."""
FAST_SHARE = 0.1
"""Fraction of the samples that count as fastest. Every second cause occurs at one of them."""


def moments_of(scenario: Scenario, commands: Array, runs: int, random: np.random.Generator) -> list[int]:
    """Draw the samples of the causes: alternately any sample and one of the fastest."""
    last = len(commands) - 2 * scenario.samples_per_step - scenario.bridge.longest(scenario.dt) - 1
    changes = np.array([limit.velocity * scenario.dt for limit in scenario.limits.values()])
    speed = np.abs(np.diff(commands[: last + 1], axis=0) / changes).max(axis=1)
    fastest = np.argsort(speed)[-max(1, round(FAST_SHARE * last)) :] + 1
    fastest = fastest[fastest > 1]
    drawn = [random.choice(fastest) if run % 2 else random.integers(2, last + 1) for run in range(runs)]
    return sorted(map(int, drawn))


# -- the loop in one process


class Watched(Sink):
    """Sink for applied commands, flags and true displacements. At each moment a copy continues with a cause."""

    def __init__(self, loop: FaultyLoop, causes: dict[int, list[str]], copies: Copies, seed: int) -> None:
        self._loop, self._causes, self._copies, self._seed = loop, causes, copies, seed
        self.path: list[Array] = []
        self.flags: list[int] = []
        self.true: list[Array] = []
        self.stop_requested = False

    def measurement(self, measured: Measurement) -> None:
        self.path.append(measured.command.copy())
        self.flags.append(measured.flags)
        if self._copies.inside is not None:
            return
        sample = measured.sample
        for number, cause in enumerate(self._causes.get(sample, ())):
            if self._copies.split((cause, sample)):
                self._inject(cause, sample, np.random.default_rng((self._seed, sample, number)))
                return

    def truth(self, true: Measurement) -> None:
        self.true.append(true.displacement.copy())

    def _inject(self, cause: str, sample: int, random: np.random.Generator) -> None:
        if cause == "stop":
            self.stop_requested = True
            return
        scenario = self._loop.scenario
        axis = str(random.choice(list(scenario.axes)))
        now, following = sample * scenario.dt, (sample + 1) * scenario.dt
        faults = {
            "limit": f"sensor_spike@{following}:{axis},force,{3.0 * scenario.limits[axis].force}",
            "silence": f"drop@{now}:{random.choice(('target', 'command'))},1000000",
            "pressure": f"hydraulics@{following}:off",
            "interlock": f"interlock@{following}",
        }
        self._loop.put_in([parse(faults[cause])])

    def figures(self, cause: str, sample: int) -> Figures | str:
        """Return the figures of a copy after its run, or an error message if it did not stop."""
        flags, path, scenario = np.array(self.flags), np.array(self.path), self._loop.scenario
        tripped = np.flatnonzero(flags & FLAG_TRIPPED)
        if not len(tripped):
            return f"sample {sample}: no stop"
        at = sample + (cause in MEASURED)
        if cause == "silence":  # count from the last sample with Target and Command
            at = sample + int(np.flatnonzero(flags[sample + 1 :] & (FLAG_BRIDGED | FLAG_TRIPPED))[0])
        run = figures_of(scenario, path, at, int(tripped[0]) + (cause in MEASURED) - at, len(flags) - 1 - at)
        run = run.with_actuators(path[at], np.array([*self.true[at:], *self._settled()]))
        # the rig takes no commands after the interlock has opened
        return replace(run, sharpest=math.nan) if cause == "interlock" else run

    def _settled(self) -> Iterator[Array]:
        """Yield the positions of the actuators while they settle at the last command."""
        port, last = self._loop.rig.port, self.path[-1]
        for _ in range(round(SETTLED_S / self._loop.scenario.dt)):
            port.write(Command(port.wait_tick(), last, last, np.zeros(len(port.auxiliary_inputs))))
            true = port.truth()
            if true is not None:
                yield true.displacement


def embedded(scenario: Scenario, causes: list[str], runs: int, seed: int, at_once: int = 1) -> Iterator[Row]:
    """Run the loop in one process; copies continue with the causes."""
    per_step, bridged = scenario.samples_per_step, scenario.bridge.longest(scenario.dt)
    first = {"stop": per_step, "limit": 1, "silence": bridged + 1, "pressure": 1, "interlock": 1}
    rows = rows_of("embedded", scenario, causes, first)
    commands = hosts.run(scenario).read().command
    random, copies = np.random.default_rng(seed), Copies(at_once)
    at = {cause: moments_of(scenario, commands, runs, random) for cause in rows}
    loop = FaultyLoop(Assembly(scenario), ())
    watched = Watched(loop, by_moment(at), copies, seed)

    def run() -> None:
        loop.run([watched], interrupted=lambda: watched.stop_requested)
        if copies.inside is not None:
            copies.finish(watched.figures(*copies.inside))

    return filled(rows, copies, run)


def rows_of(host: str, scenario: Scenario, causes: list[str], first: dict[str, int]) -> dict[str, Row]:
    """Return an empty row for each cause that the host has, by cause."""
    return {
        cause: Row(host, cause, scenario, stated(scenario, first[cause])) for cause in causes if cause in first
    }


def by_moment(moments: Mapping[str, Iterable[int]]) -> dict[int, list[str]]:
    """Return the causes by sample, from the samples of each cause."""
    at: dict[int, list[str]] = defaultdict(list)
    for cause, samples in moments.items():
        for sample in samples:
            at[sample].append(cause)
    return at


def filled(rows: dict[str, Row], copies: Copies, run: Callable[[], None]) -> Iterator[Row]:
    """Add the results of the ``copies`` made by ``run`` to the ``rows``, and yield the rows."""
    try:
        run()
    except BaseException:
        copies.failed()
        raise
    for (cause, sample), result in copies.wait():
        rows[cause].add(result, f" at sample {sample}")
    yield from rows.values()


# -- the receiver


class Replay:
    """Receiver of the emulated rig of ``scenario`` that receives ``commands`` (m) as datagrams."""

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
        """Replay the test; at each cause a copy continues until the rig is at rest."""
        for kind in (datagrams.OPEN, datagrams.BEGIN):
            self._send(kind)
        for sample in range(len(self._commands)):
            if sample:
                command, last = self._commands[sample], self._commands[sample - 1]
                slope = ((command - last) / self._scenario.dt).tolist()
                rows = datagrams.command_rows(command.tolist(), slope, np.zeros(0))
                self._send(datagrams.COMMAND, sample, rows)
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
        """Make one tick. Return true if the receiver brakes."""
        if not self._stuck:
            self.receiver.sensors.displacement[: len(self.receiver.command)] = self.receiver.command
        self.receiver.state()
        self.receiver.drive()
        self.path.append(self.receiver.command)
        return self.receiver.state_number >= datagrams.BRAKING or self.receiver.missing > self._bridged

    _stuck = False

    def _stopped(self, cause: str, sample: int, random: np.random.Generator) -> Figures:
        """Inject ``cause`` before state ``sample`` is sent and return the figures of the stop."""
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
        return figures_of(self._scenario, np.array(self.path), sample, brakes.index(True) + 1)


def receiver(scenario: Scenario, causes: list[str], runs: int, seed: int, at_once: int = 1) -> Iterator[Row]:
    """Run the C receiver. Cable, killed and suspended test computer are the same cause: no command arrives."""
    commands = hosts.run(scenario).read().command
    overrides = [*SCENARIOS[scenario.name], UDP.format(TRANSPORT), f"duration={scenario.duration}"]
    far = files.load(scenario.name, overrides)
    copies, random = Copies(at_once), np.random.default_rng(seed)
    at: dict[int, list[str]] = {}
    replay = Replay(far, commands, at, copies)
    silent = TRANSPORT + replay._bridged + 1
    persistence = replay.persistence
    first = {"stop": 1, "limit": persistence, "interlock": 1} | dict.fromkeys(("silence", "cable", "kill"), silent)
    rows = rows_of("receiver", far, causes, first)
    at |= by_moment({cause: moments_of(far, commands, runs, random) for cause in rows})
    return filled(rows, copies, lambda: replay.run(seed))


def print_table(rows: list[Row], markdown: bool) -> int:
    """Print the table and the violations. Return the exit code."""
    table = [HEAD, *(row.cells() for row in rows)]
    if markdown:
        table.insert(1, ["---"] * len(HEAD))
        print(*(f"| {' | '.join(cells)} |" for cells in table), sep="\n")
    else:
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        print(*("  ".join(map(str.ljust, cells, widths)).rstrip() for cells in table), sep="\n")
    for row in rows:
        if row.early:
            print(f"{row.host}, {row.cause}: {row.early} further runs ended before the cause")
    wrong = [violation for row in rows for violation in row.wrong]
    print(*wrong[:50], sep="\n", end="\n" if wrong else "")
    print(f"{len(wrong)} stated values exceeded" if wrong else "no stated value exceeded (stated / largest)")
    return int(bool(wrong))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="runs of each cause; default: %(default)d")
    parser.add_argument("--real-time-runs", type=int, default=30, help="in real time; default: %(default)d")
    parser.add_argument("--journal", type=Path, help="file of real-time runs: counts them and adds new runs")
    parser.add_argument("--hosts", nargs="+", choices=(*IN_PROCESS, *REAL_TIME), default=(*IN_PROCESS, *REAL_TIME))
    parser.add_argument("--causes", nargs="+", choices=CAUSES, default=CAUSES)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--seconds", type=float, default=12.0, help="duration of a test; default: %(default)g")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)d")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="copies; default: %(default)d")
    parser.add_argument("--markdown", action="store_true", help="print the table of doc/measured/stops.md")
    options = parser.parse_args()
    causes, seed = list(options.causes), options.seed
    rows: list[Row] = []
    for host in options.hosts:
        for name in options.scenarios if host in IN_PROCESS else options.scenarios[:1]:
            scenario = files.load(name, [*SCENARIOS[name], f"duration={options.seconds}"])
            if host in IN_PROCESS:
                run = embedded if host == "embedded" else receiver
                rows += run(scenario, causes, options.runs, seed, options.at_once)
            else:
                import stops_in_real_time as real_time  # imports ROS

                clocked = real_time.udp if host == "udp" else partial(real_time.nodes, host)
                rows += clocked(scenario, causes, options.real_time_runs, seed, Journal(options.journal))
    return print_table(rows, options.markdown)


if __name__ == "__main__":
    sys.exit(main())
