# SPDX-License-Identifier: Apache-2.0
"""Time per step of each compensator: python benchmarks/compensators.py

Prints the median time of `step` for a rig with three axes, in microseconds, and its ratio to a floor that is
measured in the same run: a copy of three numbers. `slow` is the 99th percentile, because some methods fit only
now and then.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.parameters import required_names
from rths_nodes.core.samples import Motion
from rths_nodes.core.validation import from_data

DT, N_AXES, DELAY = 1.0 / 1024.0, 3, 0.0137
TARGET_US = 25.0
"""A tenth of a sample at 4096 Hz."""

RIG = {"mass": 98.3, "damping": 100.0, "stiffness": 1.2e6}
"""kg, N s/m and N/m on each axis."""

MINIMAL: dict[str, Any] = {
    "delay": DELAY,
    "first": {"type": "discrete_model"},
    "second": {"type": "polynomial", "delay": DELAY},
}
"""Parameters without a default, by name."""

OWN: dict[str, dict[str, Any]] = {
    "model_based": {
        "known": {name: (size * np.eye(N_AXES)).tolist() for name, size in RIG.items()},
        "feedback": {},
    },
    "identified_inverse": {
        "inverse": {
            name: (size * np.eye(N_AXES)).tolist()
            for name, size in (("displacement", 1.0), ("velocity", DELAY), ("acceleration", 1e-4), ("jerk", 4e-7))
        }
    },
}
"""What a compensator needs beside: the specimen of a rig of its own."""


def built(name: str) -> Any:
    """The compensator with its defaults, and with what it cannot do without."""
    cls = registry.load("compensator", name)
    own = {key: MINIMAL[key] for key in required_names(cls.Params) if key in MINIMAL} | OWN.get(name, {})
    return cls(from_data(cls.Params, own, name), DT, N_AXES)


def signals(count: int) -> tuple[list[Motion], list[np.ndarray]]:
    """Targets of some hertz and centimetres, and what an actuator makes of them a delay later, with noise."""
    times = DT * np.arange(1, count + 1)[:, None] * np.ones(N_AXES)
    frequencies = 2.0 * np.pi * np.array([0.7, 1.1, 1.9])
    x, late = (0.02 * np.sin(frequencies * (times - late)) for late in (0.0, DELAY))
    v = np.gradient(x, DT, axis=0)
    a = np.gradient(v, DT, axis=0)
    measured = late + 5e-6 * np.random.default_rng(1).normal(size=late.shape)
    forces = 1e6 * late
    return [Motion(x[k], v[k], a[k], force=forces[k]) for k in range(count)], list(measured)


def durations(step: Callable[[Motion, np.ndarray], Any], count: int) -> np.ndarray:
    """Microseconds of each call."""
    targets, measured = signals(count)
    taken = np.zeros(count)
    for k in range(count):
        target, seen = targets[k], measured[k]
        started = perf_counter_ns()
        step(target, seen)
        taken[k] = perf_counter_ns() - started
    return taken / 1e3


def floor(target: Motion, measured: np.ndarray) -> np.ndarray:
    """The least: hand on a copy."""
    return target.displacement.copy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    least = float(np.median(durations(floor, options.samples)))
    print(f"floor: copy of {N_AXES} numbers {least:.2f} us; wanted: below {TARGET_US:g} us")
    print(f"{'compensator':24} {'median us':>10} {'x floor':>8} {'slow us':>8}")
    result: dict[str, Any] = {"floor_us": least}
    for name in registry.names("compensator"):
        compensator = built(name)
        taken = durations(compensator.step, options.samples)
        median, slow = float(np.median(taken)), float(np.percentile(taken, 99.0))
        result[name] = {"median_us": median, "ratio": median / least, "slow_us": slow}
        print(
            f"{name:24} {median:10.2f} {median / least:8.1f} {slow:8.2f}{'' if median < TARGET_US else '  above'}"
        )
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
