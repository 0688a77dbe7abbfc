# SPDX-License-Identifier: Apache-2.0
"""Cost of the check for frozen sensors: processor time of a sample with and without it, run alternately.

Compares the shortest times of all turns, because other programs affect them least. The exit code is 1 if the ratio
exceeds LARGEST.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from rths_nodes.app import hosts
from rths_nodes.loop.stages.frozen import FrozenSensors

LARGEST = 1.02
"""Largest allowed ratio of the times with and without the check."""


def cost(scenario: str, duration: float) -> float:
    """Return the processor time of a sample of the embedded loop, s."""
    start = time.process_time()
    samples = hosts.run(scenario, [f"duration={duration:g}"], keep=False, engine="python").samples
    return (time.process_time() - start) / samples


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="chen_ricles_2010", help="default: %(default)s")
    parser.add_argument("--duration", type=float, default=10.0, help="duration of a run, s; default: %(default)g")
    parser.add_argument("--turns", type=int, default=30, help="pairs of runs; default: %(default)d")
    options = parser.parse_args()
    check: Callable[..., None] = FrozenSensors.add
    cost(options.scenario, options.duration)  # warms up
    pairs = []
    for _ in range(options.turns):
        checked = cost(options.scenario, options.duration)
        FrozenSensors.add = lambda *row: None  # type: ignore[method-assign]
        pairs.append((checked, cost(options.scenario, options.duration)))
        FrozenSensors.add = check  # type: ignore[method-assign]
    checked, unchecked = map(min, zip(*pairs, strict=True))
    ratio = checked / unchecked
    print(f"with {1e6 * checked:.2f} us, without {1e6 * unchecked:.2f} us per sample, ratio {ratio:.3f}")
    return int(ratio > LARGEST)


if __name__ == "__main__":
    raise SystemExit(main())
