# SPDX-License-Identifier: Apache-2.0
"""Real-time performance relative to the floors of the machine: python benchmarks/latency.py [--quick]

Runs a shear frame with one actuator axis on each story in real time, for each host, servo rate and number of axes,
with and without monitor and recorder. With --scenario, runs that scenario instead. Before and after each run,
measures a bare paced loop at the same rate and a ping-pong between two processes; after the run, also a
computation alone that is as long as the median of the loop. Figures are also given as ratios to these floors.
Writes figures and facts about the machine to OUT/latency.json, and a drawing to OUT/latency.png.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import figure
import floor
from memory import PATIENCE

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.commands import doctor
from rths_nodes.app.commands.terminal import finite
from rths_nodes.core import yaml_text
from rths_nodes.core.durations import trimmed
from rths_nodes.loop.options import SOCKETS, TRANSPORTS, run_options
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros.hosting import descriptions as launching
from rths_nodes.ros.names import MONITOR, RECORDER

STEP_S = 0.01
"""Integration step at every rate, nearly: whole samples."""
DELAY_S = 0.027
"""Delay of the actuators, s: alpha = 29 at 1024 Hz."""
SCALE = 0.02
"""Of the ground motion: small, so that no limit is reached with any number of stories."""
APART = "apart"
"""Both take part, the recorder in a process of its own."""
ABSENT = {"none": (MONITOR, RECORDER), "monitor": (RECORDER,), "recorder": (MONITOR,), "both": (), APART: ()}
"""The nodes that are left out, by which of monitor and recorder take part."""
PLUS = 0.01
"""Share of ticks that may be missed beyond three times the floor."""


class Stopped(Exception):
    """A run did not come to its end: the machine is too slow for it."""


@dataclass(frozen=True)
class Configuration:
    """One run."""

    scenario: str
    host: str
    rate: float
    axes: int
    observers: str
    transport: str = SOCKETS


def named(words: str) -> Scenario:
    """The scenario ``NAME`` or ``NAME:CASE``."""
    name, _, case = words.partition(":")
    return files.load(name, case=case)


def at_rate(scenario: Scenario, rate: float, seconds: float) -> Scenario:
    """The scenario for ``seconds`` at another servo rate, its integration step as near as may be."""
    substeps = max(1, round(scenario.samples_per_step * rate / scenario.servo_rate))
    return override(scenario, [f"duration={seconds}", f"servo_rate={rate}", f"substeps={substeps}"])


def frame(rate: float, axes: int, seconds: float) -> Scenario:
    """A frame with as many stories as axes, its members and actuators those of `chen_ricles_2010`."""
    data = files.load("chen_ricles_2010").data()
    axis = data["axes"]["story_1"]
    alpha = 1.0 + DELAY_S * rate
    axis["actuator"]["alpha"] = data["compensator"]["alpha_es"] = alpha
    data["ground_motion"]["scale"] = SCALE
    mass, stiffness = data["structure"]["mass"], data["structure"]["restoring_force"]["stiffness"]
    data |= {
        "name": f"frame_{axes}",
        "servo_rate": rate,
        "substeps": max(1, round(STEP_S * rate)),
        "duration": seconds,
        "structure": {"type": "shear_frame", "masses": [mass] * axes, "stiffnesses": [stiffness] * axes},
        "integrator": {"type": "explicit_newmark"},
        "axes": {f"story_{number}": axis for number in range(1, axes + 1)},
        "cases": {},
    }
    return files.from_text(yaml_text.dump(data), "benchmark")


def nodes(configuration: Configuration, file: Path, run_id: str, record: str) -> list[launching.NodeDescription]:
    """The nodes of a run, without those that are to be absent."""
    host, absent = configuration.host, ABSENT[configuration.observers]
    console = host == "processes" or configuration.observers == APART
    options = run_options(
        {
            "scenario": str(file),
            "pace": "realtime",
            "run_id": run_id,
            "record": record,
            "host": host,
            "transport": configuration.transport,
        }
    )
    described = launching.describe(options, console=console)
    peers = [peer for peer in described[0].parameters["peers"] if peer not in absent]
    present = [node for node in described if node.role not in absent]
    return [replace(node, parameters=node.parameters | {"peers": peers}) for node in present]


def run(configuration: Configuration, seconds: float) -> dict[str, Any]:
    """The timing of a run, the gaps in its recording, and a computation as long as its loop, by itself.

    Raises Stopped.
    """
    name, rate = configuration.scenario, configuration.rate
    scenario = at_rate(named(name), rate, seconds) if name else frame(rate, configuration.axes, seconds)
    scenario = override(scenario, PATIENCE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "frame.yaml"
        file.write_text(yaml_text.dump(scenario.data()))
        descriptions = nodes(configuration, file, scenario.run_id(), f"{folder}/run")
        if configuration.host == "processes":
            from rths_nodes.ros.hosting import processes

            result = processes.run(descriptions)
        else:
            from rths_nodes.ros.hosting import composed

            separate = (RECORDER,) if configuration.observers == APART else ()
            result = composed.run(descriptions, hosts.open_writer, separate=separate)
    if result.exit_code:
        raise Stopped(f"{result.outcome}: {result.reason}")
    timing = result.section("timing")
    for name in [name for name in timing if name.endswith("_histogram")]:
        timing[name] = trimmed(timing[name])
    gaps = result.section("recording").get("gaps", {})
    alone = floor.computing(configuration.rate, seconds / 2.0, timing["loop"]["median_s"])
    return {
        "samples": result.sample,
        "timing": timing,
        "gaps": int(sum(gaps.values())),
        "notes": result.notes,
        "computing_alone": alone,
    }


def floors(rate: float, seconds: float) -> dict[str, Any]:
    """Measure what the machine does by itself, now."""
    figures, _ = floor.wake_up(rate, seconds)
    figures["lateness_histogram"] = trimmed(figures["lateness_histogram"])
    return {"paced": figures, "ping_pong": floor.ping_pong()}


def judged(configuration: Configuration, found: dict[str, Any], around: list[dict[str, Any]]) -> dict[str, Any]:
    """A run beside the floors before and after it."""
    timing = found["timing"]
    slots = found["samples"] + timing["missed"]
    missed = timing["missed"] / slots
    bare = sum(each["paced"]["missed_share"] for each in around) / len(around)
    late = sum(each["paced"]["lateness"]["p99_s"] for each in around) / len(around)
    trip = sum(each["ping_pong"]["median_s"] for each in around) / len(around)
    return {
        **asdict(configuration),
        **found,
        "floors": around,
        "missed_share": missed,
        "floor_missed_share": bare,
        "ratios": {
            "missed": missed / bare if bare else math.nan,
            "lateness_p99": timing["lateness"]["p99_s"] / late,
            "loop_median_to_ping_pong": timing["loop"]["median_s"] / trip,
            "loop_p999_to_computing": timing["loop"]["p999_s"] / found["computing_alone"]["p999_s"],
        },
        "loop_p99_of_period": timing["loop"]["p99_s"] * configuration.rate,
        "loop_p999_of_period": timing["loop"]["p999_s"] * configuration.rate,
        "met": missed <= 3.0 * bare + PLUS,
    }


HEAD = (
    f"{'host':10}{'Hz':>6}{'axes':>5} {'observers':10}{'missed %':>9}{'floor %':>9}{'ratio':>7}"
    f"{'late p99':>10}{'x floor':>8}{'loop':>7}{'p99':>7}{'p99.9':>7}{'x trip':>7}"
    f"{'p99/T':>7}{'p999/T':>7}{'x alone':>8}{'gaps':>6}"
)


def start(row: dict[str, Any]) -> str:
    """Where a row of the table begins: what was run."""
    return f"{row['host']:10}{row['rate']:6g}{row['axes']:5d} {row['observers']:10}"


def line(row: dict[str, Any]) -> str:
    """A row of the table; times in microseconds."""
    late, loop, ratios = row["timing"]["lateness"], row["timing"]["loop"], row["ratios"]
    ratio = f"{ratios['missed']:7.1f}" if math.isfinite(ratios["missed"]) else f"{'-':>7}"
    return (
        f"{start(row)}{100 * row['missed_share']:9.3f}"
        f"{100 * row['floor_missed_share']:9.3f}{ratio}{1e6 * late['p99_s']:10.1f}{ratios['lateness_p99']:8.1f}"
        f"{1e6 * loop['median_s']:7.0f}{1e6 * loop['p99_s']:7.0f}{1e6 * loop['p999_s']:7.0f}"
        f"{ratios['loop_median_to_ping_pong']:7.1f}"
        f"{row['loop_p99_of_period']:7.2f}{row['loop_p999_of_period']:7.2f}{ratios['loop_p999_to_computing']:8.1f}"
        f"{row['gaps']:6d}{'' if row['met'] else '  NOT MET'}"
    )


def measure(
    configurations: list[Configuration], seconds: float, floor_seconds: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All runs, each between two floors, and those that were stopped; at the same rate they share a floor."""
    rows, stopped = [], []
    for rate, group in itertools.groupby(configurations, key=lambda each: each.rate):
        before = floors(rate, floor_seconds)
        for configuration in group:
            try:
                found = run(configuration, seconds)
            except Stopped as reason:
                stopped.append({**asdict(configuration), "reason": str(reason)})
                print(f"{start(stopped[-1])} {reason}", flush=True)
                before = floors(rate, floor_seconds)
                continue
            after = floors(rate, floor_seconds)
            rows.append(judged(configuration, found, [before, after]))
            print(line(rows[-1]), flush=True)
            before = after
    return rows, stopped


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one axis at 1024 Hz, short")
    parser.add_argument("--hosts", nargs="+", choices=("composed", "processes"), default=["composed", "processes"])
    parser.add_argument("--rates", nargs="+", type=float, metavar="HZ", help="default: 256 1024 2048 4096")
    parser.add_argument("--scenario", default="", metavar="NAME[:CASE]", help="in place of the frame, at its rate")
    parser.add_argument("--axes", nargs="+", type=int, default=[1, 3, 8], metavar="N")
    parser.add_argument("--observers", nargs="+", choices=tuple(ABSENT), default=["none", "both"])
    parser.add_argument(
        "--transport", choices=TRANSPORTS, default=SOCKETS, help="between processes; default: %(default)s"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run; default: %(default)g")
    parser.add_argument("--out", type=Path, default=Path("runs/latency"), help="folder; default: %(default)s")
    given = parser.parse_args()
    if given.scenario:
        scenario = named(given.scenario)
        given.axes, given.rates = [len(scenario.axes)], given.rates or [scenario.servo_rate]
    given.rates = given.rates or [256.0, 1024.0, 2048.0, 4096.0]
    if given.quick:
        given.rates, given.axes, given.seconds = [1024.0], [1], min(given.seconds, 3.0)
    return given


def main() -> None:
    given = options()
    given.out.mkdir(parents=True, exist_ok=True)
    about = {fact.name: fact.data() for fact in doctor.facts()}
    choices = itertools.product(given.rates, given.axes, given.hosts, given.observers)
    configurations = [
        Configuration(given.scenario, host, rate, axes, seen, given.transport)
        for rate, axes, host, seen in choices
        if host == "composed" or seen != APART  # there it always is
    ]
    print(
        f"{len(configurations)} runs of {given.seconds:g} s; times in us; allowed misses: 3 x floor + {PLUS:.0%}"
    )
    print(HEAD)
    rows, stopped = measure(configurations, given.seconds, given.seconds / 2.0)
    result = {
        "version": rths_nodes.__version__,
        "machine": about,
        "python_step_s": floor.python_step(),
        "seconds": given.seconds,
        "runs": rows,
        "stopped": stopped,
    }
    (given.out / "latency.json").write_text(json.dumps(finite(result), indent=1))
    if rows:
        figure.draw(finite(result), given.out / "latency.png")
    print(", ".join(str(path) for path in sorted(given.out.glob("latency.*"))))
    sys.exit(1 if stopped else 0)


if __name__ == "__main__":
    main()
