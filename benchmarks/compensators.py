# SPDX-License-Identifier: Apache-2.0
"""Time per step of each compensator: python benchmarks/compensators.py

Prints the median time of `step` for a rig with three axes, in us, and its ratio to a floor measured in the same
run: a copy of three numbers. `slow` is the 99th percentile, because some methods fit their parameters only in some
samples. Compensators that need a file are skipped.
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
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import required_names
from rths_nodes.core.samples import Motion
from rths_nodes.core.validation import from_data

DT, N_AXES, DELAY = 1.0 / 1024.0, 3, 0.0137
TARGET_US = 25.0
"""Tenth of a sample at 4096 Hz."""

RIG = {"mass": 98.3, "damping": 100.0, "stiffness": 1.2e6}
"""kg, N s/m and N/m on each axis."""

MINIMAL: dict[str, Any] = {
    "delay": DELAY,
    "first": {"type": "discrete_model"},
    "second": {"type": "polynomial", "delay": DELAY},
}
"""Values of the parameters without a default, by name."""

SPECIMENS: dict[str, dict[str, Any]] = {
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
"""Further parameters of a compensator, by its name: the identified rig."""


def built(name: str) -> Any:
    """Build a compensator with default parameters. Raises ConfigError if it needs a file."""
    cls = registry.load("compensator", name)
    required = {key: MINIMAL[key] for key in required_names(cls.Params) if key in MINIMAL}
    return cls(from_data(cls.Params, required | SPECIMENS.get(name, {}), name), DT, N_AXES)


def signals(count: int) -> tuple[list[Motion], list[np.ndarray]]:
    """Return targets (0.7 to 1.9 Hz, 20 mm) and the displacements measured DELAY later, with noise."""
    times = DT * np.arange(1, count + 1)[:, None] * np.ones(N_AXES)
    frequencies = 2.0 * np.pi * np.array([0.7, 1.1, 1.9])
    x, late = (0.02 * np.sin(frequencies * (times - late)) for late in (0.0, DELAY))
    v = np.gradient(x, DT, axis=0)
    a = np.gradient(v, DT, axis=0)
    measured = late + 5e-6 * np.random.default_rng(1).normal(size=late.shape)
    forces = 1e6 * late
    return [Motion(x[k], v[k], a[k], force=forces[k]) for k in range(count)], list(measured)


def durations(step: Callable[[Motion, np.ndarray], Any], count: int) -> np.ndarray:
    """Return the duration of each call, us."""
    times = np.zeros(count)
    for k, (target, measured) in enumerate(zip(*signals(count), strict=True)):
        start = perf_counter_ns()
        step(target, measured)
        times[k] = perf_counter_ns() - start
    return times / 1e3


def floor(target: Motion, measured: np.ndarray) -> np.ndarray:
    """Copy the target: the least that a compensator can do."""
    return target.displacement.copy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000, help="calls of each; default: %(default)d")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    least = float(np.median(durations(floor, options.samples)))
    print(f"floor: copy of {N_AXES} numbers {least:.2f} us; wanted: below {TARGET_US:g} us")
    print(f"{'compensator':24} {'median us':>10} {'x floor':>8} {'slow us':>8}")
    result: dict[str, Any] = {"floor_us": least}
    for name in registry.names("compensator"):
        try:
            compensator = built(name)
        except ConfigError as error:
            print(f"{name:24} skipped: {str(error).splitlines()[0]}")
            continue
        median, slow = np.percentile(durations(compensator.step, options.samples), (50.0, 99.0)).tolist()
        result[name] = {"median_us": median, "ratio": median / least, "slow_us": slow}
        verdict = "" if median < TARGET_US else "  above"
        print(f"{name:24} {median:10.2f} {median / least:8.1f} {slow:8.2f}{verdict}")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
