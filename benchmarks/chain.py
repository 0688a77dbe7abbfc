# SPDX-License-Identifier: Apache-2.0
"""Time of a sample between nodes in separate processes, by step: python benchmarks/chain.py

Each node records when it sends and when it receives a message of the streams (`traced/sitecustomize.py`, at a cost
of some tenths of a us per message). Messages are paired by their order. A sample with an integration step is a
chain of three processes:

    measurement sent -> integrator has it -> target sent -> compensator has it -> command sent -> actuator has it

In all other samples the compensator answers the measurement directly. Prints medians and 99th percentiles in us.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np
from latency import Configuration, at_rate, named, nodes
from memory import PATIENCE

from rths_nodes.core import yaml_text
from rths_nodes.loop.scenario.files import override
from rths_nodes.ros.names import ACTUATOR, COMPENSATOR, INTEGRATOR

MEASUREMENT, TARGET, COMMAND = range(3)
SENT, RECEIVED = range(2)
SKIPPED = 200
"""Samples at the start that are not evaluated: the processes warm up."""
SMALL = "ground_motion.scale=0.005"
"""Motion small enough to stay within the limits even when samples are bridged."""


def traced(scenario_name: str, rate: float, seconds: float, observers: str) -> tuple[dict[str, np.ndarray], int]:
    """Return the trace of each node and the samples per integration step. Exit if the run did not finish."""
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
        traces = {}
        for role in (ACTUATOR, INTEGRATOR, COMPENSATOR):
            rows = np.fromfile(Path(folder) / f"{role}.dat", np.int64).reshape(-1, 3)
            traces[role] = rows[rows[:, 0] > 0]
    return traces, scenario.samples_per_step


def times(rows: np.ndarray, stream: int, direction: int) -> np.ndarray:
    """Return the times at which the messages of a stream were SENT or RECEIVED, us."""
    return np.asarray(rows[(rows[:, 1] == stream) & (rows[:, 2] == direction), 0] * 1e-3)


def legs(traces: dict[str, np.ndarray], per_step: int) -> dict[str, np.ndarray]:
    """Return the times of each leg of the chain by name, us: samples with an integration step, then the others."""
    actuator, integrator, compensator = (traces[role] for role in (ACTUATOR, INTEGRATOR, COMPENSATOR))
    measured, applied = times(actuator, MEASUREMENT, SENT), times(actuator, COMMAND, RECEIVED)
    to_integrator, target_sent = times(integrator, MEASUREMENT, RECEIVED), times(integrator, TARGET, SENT)
    target_in, to_compensator = times(compensator, TARGET, RECEIVED), times(compensator, MEASUREMENT, RECEIVED)
    command = times(compensator, COMMAND, SENT)
    count = min(map(len, (measured, to_integrator, to_compensator, command, applied)))
    # Target 0 is sent before any Measurement
    steps = np.arange(0, count, per_step)[: min(len(target_sent), len(target_in)) - 1]
    steps = steps[steps >= SKIPPED]
    target = steps // per_step + 1
    rest = np.setdiff1d(np.arange(SKIPPED, count), np.arange(0, count, per_step))
    return {
        "measurement sent, integrator has it": to_integrator[steps] - measured[steps],
        "integrator has it, target sent": target_sent[target] - to_integrator[steps],
        "target sent, compensator has it": target_in[target] - target_sent[target],
        "compensator has it, command sent": command[steps] - target_in[target],
        "command sent, actuator has it": applied[steps] - command[steps],
        "a sample with a step": applied[steps] - measured[steps],
        "measurement sent, compensator has it": to_compensator[rest] - measured[rest],
        "compensator has measurement, command sent": command[rest] - to_compensator[rest],
        "command sent, actuator has it, no step": applied[rest] - command[rest],
        "a sample without a step": applied[rest] - measured[rest],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="chen_ricles_2010", help="NAME or NAME:CASE; default: %(default)s")
    parser.add_argument("--rates", nargs="+", type=float, default=(1024.0, 4096.0), metavar="HZ")
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of a run, s; default: %(default)g")
    parser.add_argument("--observers", default="both", help="monitor, recorder or both; default: %(default)s")
    options = parser.parse_args()
    for rate in options.rates:
        times_of_legs = legs(*traced(options.scenario, rate, options.seconds, options.observers))
        print(f"{options.scenario}, {rate:g} Hz, period {1e6 / rate:.0f} us")
        print(f"  {'':42}{'median':>8}{'p99':>8}")
        for name, values in times_of_legs.items():
            median, p99 = np.percentile(values, (50.0, 99.0))
            print(f"  {name:42}{median:8.0f}{p99:8.0f}")


if __name__ == "__main__":
    main()
