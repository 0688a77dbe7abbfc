# SPDX-License-Identifier: Apache-2.0
"""Real-time performance relative to the floors of the machine: python benchmarks/latency.py [--quick]

Runs a shear frame with one actuator axis on each story in real time, for each host, servo rate and number of axes,
with and without monitor and recorder. With --scenario, runs that scenario instead. Measures floors before and
after each run: a bare paced loop at the same rate and a ping-pong between two processes; after the run, also a
computation alone, as long as the median of the loop. Prints figures and their ratios to these floors. Writes
figures and facts about the machine to OUT/latency.json, and a chart to OUT/latency.png.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from statistics import fmean
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
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros.hosting import node_processes as launching
from rths_nodes.ros.names import MONITOR, RECORDER

STEP_S = 0.01
"""Integration step, rounded to samples at each rate, s."""
DELAY_S = 0.027
"""Delay of the actuators, s: alpha = 29 at 1024 Hz."""
SCALE = 0.02
"""Scale of the ground motion, small enough to stay within the limits with any number of stories."""
APART = "apart"
"""Monitor and recorder, the recorder in its own process."""
ABSENT = {"none": (MONITOR, RECORDER), "monitor": (RECORDER,), "recorder": (MONITOR,), "both": (), APART: ()}
"""Omitted nodes, by value of ``--observers``."""
PLUS = 0.01
"""Fraction of ticks that may be missed in addition to three times the floor."""


class Stopped(Exception):
    """Raised if a run does not finish, because the machine is too slow."""


@dataclass(frozen=True)
class Configuration:
    """Configuration of one run; an empty ``scenario`` is the frame."""

    scenario: str
    host: str
    rate: float
    axes: int
    observers: str
    transport: str = SOCKETS


def named(text: str) -> Scenario:
    """Load the scenario ``NAME`` or ``NAME:CASE``."""
    name, _, case = text.partition(":")
    return files.load(name, case=case)


def at_rate(scenario: Scenario, rate: float, seconds: float) -> Scenario:
    """Return the scenario for ``seconds`` at another servo rate, with the nearest possible integration step."""
    substeps = max(1, round(scenario.samples_per_step * rate / scenario.servo_rate))
    return override(scenario, [f"duration={seconds}", f"servo_rate={rate}", f"substeps={substeps}"])


def frame(rate: float, axes: int, seconds: float) -> Scenario:
    """Return a frame with one axis per story, with members and actuators of `chen_ricles_2010`."""
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
    """Describe the nodes of a run, without those in ABSENT."""
    host, absent = configuration.host, ABSENT[configuration.observers]
    console = host == "processes" or configuration.observers == APART
    options = {"scenario": str(file), "pace": "realtime", "run_id": run_id, "record": record, "host": host}
    described = launching.describe(run_options(options | {"transport": configuration.transport}), console=console)
    peers = [peer for peer in described[0].parameters["peers"] if peer not in absent]
    present = [node for node in described if node.role not in absent]
    return [replace(node, parameters=node.parameters | {"peers": peers}) for node in present]


def run(configuration: Configuration, seconds: float) -> dict[str, Any]:
    """Return the timing of a run, the gaps in its recording, and the timing of a computation as long as its loop.

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
    if result.exit_code not in (ExitCode.FINISHED, ExitCode.NOT_VALID):
        raise Stopped(result.ending)
    timing = result.section("timing")
    timing |= {name: trimmed(table) for name, table in timing.items() if name.endswith("_histogram")}
    return {
        "samples": result.sample,
        "valid": result.exit_code is ExitCode.FINISHED,
        "timing": timing,
        "gaps": int(sum(result.section("recording").get("gaps", {}).values())),
        "notes": result.notes,
        "computing_alone": floor.computing(rate, seconds / 2.0, timing["loop"]["median_s"]),
    }


def floors(rate: float, seconds: float) -> dict[str, Any]:
    """Measure the bare paced loop and the ping-pong."""
    figures, _ = floor.wake_up(rate, seconds)
    figures["lateness_histogram"] = trimmed(figures["lateness_histogram"])
    return {"paced": figures, "ping_pong": floor.ping_pong()}


def judged(configuration: Configuration, result: dict[str, Any], around: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare the result of a run with the floors measured before and after it."""
    timing = result["timing"]
    missed = timing["missed"] / (result["samples"] + timing["missed"])
    bare = fmean(floors["paced"]["missed_share"] for floors in around)
    late = fmean(floors["paced"]["lateness"]["p99_s"] for floors in around)
    trip = fmean(floors["ping_pong"]["median_s"] for floors in around)
    return {
        **asdict(configuration),
        **result,
        "floors": around,
        "missed_share": missed,
        "floor_missed_share": bare,
        "ratios": {
            "missed": missed / bare if bare else math.nan,
            "lateness_p99": timing["lateness"]["p99_s"] / late,
            "loop_median_to_ping_pong": timing["loop"]["median_s"] / trip,
            "loop_p999_to_computing": timing["loop"]["p999_s"] / result["computing_alone"]["p999_s"],
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
    """Return the first columns of a row: the configuration."""
    return f"{row['host']:10}{row['rate']:6g}{row['axes']:5d} {row['observers']:10}"


def line(row: dict[str, Any]) -> str:
    """Return a row of the table; times in us."""
    late, loop, ratios = row["timing"]["lateness"], row["timing"]["loop"], row["ratios"]
    ratio = f"{ratios['missed']:7.1f}" if math.isfinite(ratios["missed"]) else f"{'-':>7}"
    return (
        f"{start(row)}{100 * row['missed_share']:9.3f}"
        f"{100 * row['floor_missed_share']:9.3f}{ratio}{1e6 * late['p99_s']:10.1f}{ratios['lateness_p99']:8.1f}"
        f"{1e6 * loop['median_s']:7.0f}{1e6 * loop['p99_s']:7.0f}{1e6 * loop['p999_s']:7.0f}"
        f"{ratios['loop_median_to_ping_pong']:7.1f}"
        f"{row['loop_p99_of_period']:7.2f}{row['loop_p999_of_period']:7.2f}{ratios['loop_p999_to_computing']:8.1f}"
        f"{row['gaps']:6d}{'' if row['met'] else '  NOT MET'}{'' if row['valid'] else ', NOT VALID'}"
    )


def measure(
    configurations: list[Configuration], seconds: float, floor_seconds: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the results of all runs, and the runs that did not finish. Successive runs share a floor."""
    rows, stopped = [], []
    for rate, group in itertools.groupby(configurations, key=attrgetter("rate")):
        before = floors(rate, floor_seconds)
        for configuration in group:
            try:
                result = run(configuration, seconds)
            except Stopped as reason:
                stopped.append({**asdict(configuration), "reason": str(reason)})
                print(f"{start(stopped[-1])} {reason}", flush=True)
                before = floors(rate, floor_seconds)
                continue
            after = floors(rate, floor_seconds)
            rows.append(judged(configuration, result, [before, after]))
            print(line(rows[-1]), flush=True)
            before = after
    return rows, stopped


def parsed() -> argparse.Namespace:
    """Parse the command line and fill in defaults that depend on other options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one axis at 1024 Hz, at most 3 s")
    parser.add_argument("--hosts", nargs="+", choices=("composed", "processes"), default=["composed", "processes"])
    parser.add_argument("--rates", nargs="+", type=float, metavar="HZ", help="default: 256 1024 2048 4096")
    parser.add_argument("--scenario", default="", metavar="NAME[:CASE]", help="instead of the frame")
    parser.add_argument("--axes", nargs="+", type=int, default=[1, 3, 8], metavar="N")
    parser.add_argument("--observers", nargs="+", choices=tuple(ABSENT), default=["none", "both"])
    parser.add_argument(
        "--transport", choices=TRANSPORTS, default=SOCKETS, help="between processes; default: %(default)s"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of a run; default: %(default)g")
    parser.add_argument("--out", type=Path, default=Path("runs/latency"), help="folder; default: %(default)s")
    options = parser.parse_args()
    if options.scenario:
        scenario = named(options.scenario)
        options.axes, options.rates = [len(scenario.axes)], options.rates or [scenario.servo_rate]
    options.rates = options.rates or [256.0, 1024.0, 2048.0, 4096.0]
    if options.quick:
        options.rates, options.axes, options.seconds = [1024.0], [1], min(options.seconds, 3.0)
    return options


def main() -> None:
    options = parsed()
    options.out.mkdir(parents=True, exist_ok=True)
    machine = {fact.name: fact.data() for fact in doctor.facts()}
    choices = itertools.product(options.rates, options.axes, options.hosts, options.observers)
    configurations = [
        Configuration(options.scenario, host, rate, axes, observers, options.transport)
        for rate, axes, host, observers in choices
        if host == "composed" or observers != APART  # the host processes always separates the recorder
    ]
    seconds = options.seconds
    print(f"{len(configurations)} runs of {seconds:g} s; times in us; allowed misses: 3 x floor + {PLUS:.0%}")
    print(HEAD)
    rows, stopped = measure(configurations, seconds, seconds / 2.0)
    result = {
        "version": rths_nodes.__version__,
        "machine": machine,
        "python_step_s": floor.python_step(),
        "seconds": seconds,
        "runs": rows,
        "stopped": stopped,
    }
    (options.out / "latency.json").write_text(json.dumps(finite(result), indent=1))
    if rows:
        figure.draw(finite(result), options.out / "latency.png")
    print(", ".join(str(path) for path in sorted(options.out.glob("latency.*"))))
    sys.exit(1 if stopped else 0)


if __name__ == "__main__":
    main()
