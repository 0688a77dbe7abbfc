# SPDX-License-Identifier: Apache-2.0
"""Time of a sample between nodes in separate processes, by step: python benchmarks/chain.py

Each node records when it sends and when it receives a message of the streams (`traced/sitecustomize.py`, at a cost
of some tenths of a us per message). Messages are paired by their order. A sample with an integration step is a
chain of three processes:

    measurement sent -> integrator has it -> target sent -> compensator has it -> command sent -> actuator has it

In all other samples the compensator answers the measurement at once. Prints medians and 99th percentiles in us.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from latency import Configuration, at_rate, named, nodes
from memory import PATIENCE

from rths_nodes.core import yaml_text
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.ros.names import ACTUATOR, COMPENSATOR, INTEGRATOR

MEASUREMENT, TARGET, COMMAND = range(3)
SENT, TAKEN = range(2)
SKIPPED = 200
"""Samples at the begin, in which processes come to rest."""
SMALL = "ground_motion.scale=0.005"
"""So small a motion stays within the limits wherever bridges take it."""


def traced(scenario_name: str, rate: float, seconds: float, observers: str) -> tuple[dict[str, np.ndarray], int]:
    """Rows of each node, and samples of an integration step. Raises SystemExit where the run did not finish."""
    from rths_nodes.ros.hosting import processes

    scenario = override(at_rate(named(scenario_name), rate, seconds), [*PATIENCE, SMALL])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "chain.yaml"
        file.write_text(yaml_text.dump(scenario.data()))
        os.environ["RTHS_TRACE"] = folder
        before = os.environ.get("PYTHONPATH", "")
        paths = [str(Path(__file__).parent / "traced"), str(Path(__file__).parents[1]), before]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        configuration = Configuration(scenario_name, "processes", rate, 1, observers)
        result = processes.run(nodes(configuration, file, scenario.run_id(), f"{folder}/run"))
        os.environ["PYTHONPATH"] = before
        if result.exit_code:
            raise SystemExit(f"{result.outcome}: {result.reason}")
        found = {}
        for role in (ACTUATOR, INTEGRATOR, COMPENSATOR):
            rows = np.fromfile(Path(folder) / f"{role}.dat", np.int64).reshape(-1, 3)
            found[role] = rows[rows[:, 0] > 0]
    return found, scenario.samples_per_step


def times(rows: np.ndarray, stream: int, taken: int) -> np.ndarray:
    """When the messages of a stream were sent, or taken, in their order, us."""
    return np.asarray(rows[(rows[:, 1] == stream) & (rows[:, 2] == taken), 0] * 1e-3)


def legs(found: dict[str, np.ndarray], per_step: int) -> dict[str, np.ndarray]:
    """Times of the legs of the chain by their names, us, for the samples with a step; then those without one."""
    actuator, integrator, compensator = (found[role] for role in (ACTUATOR, INTEGRATOR, COMPENSATOR))
    sent, back = times(actuator, MEASUREMENT, SENT), times(actuator, COMMAND, TAKEN)
    seen, made = times(integrator, MEASUREMENT, TAKEN), times(integrator, TARGET, SENT)
    had, heard = times(compensator, TARGET, TAKEN), times(compensator, MEASUREMENT, TAKEN)
    answered = times(compensator, COMMAND, SENT)
    count = min(map(len, (sent, seen, heard, answered, back)))
    steps = np.arange(0, count, per_step)[: min(len(made), len(had)) - 1]  # Target 0 comes before any Measurement
    steps = steps[steps >= SKIPPED]
    target = steps // per_step + 1
    others = np.setdiff1d(np.arange(SKIPPED, count), np.arange(0, count, per_step))
    return {
        "measurement sent, integrator has it": seen[steps] - sent[steps],
        "integrator has it, target sent": made[target] - seen[steps],
        "target sent, compensator has it": had[target] - made[target],
        "compensator has it, command sent": answered[steps] - had[target],
        "command sent, actuator has it": back[steps] - answered[steps],
        "a sample with a step": back[steps] - sent[steps],
        "measurement sent, compensator has it": heard[others] - sent[others],
        "compensator has measurement, command sent": answered[others] - heard[others],
        "command sent, actuator has it, no step": back[others] - answered[others],
        "a sample without": back[others] - sent[others],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="chen_ricles_2010", help="NAME or NAME:CASE; default: %(default)s")
    parser.add_argument("--rates", nargs="+", type=float, default=(1024.0, 4096.0), metavar="HZ")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run; default: %(default)g")
    parser.add_argument("--observers", default="both", help="which of monitor and recorder; default: %(default)s")
    options = parser.parse_args()
    for rate in options.rates:
        found = legs(*traced(options.scenario, rate, options.seconds, options.observers))
        print(f"{options.scenario}, {rate:g} Hz, period {1e6 / rate:.0f} us")
        print(f"  {'':42}{'median':>8}{'p99':>8}")
        for name, values in found.items():
            median, high = np.percentile(values, (50.0, 99.0))
            print(f"  {name:42}{median:8.0f}{high:8.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
