# SPDX-License-Identifier: Apache-2.0
"""Cost of the check for frozen sensors: processor time of a sample with and without the check, alternately.

The shortest time of all turns counts, because other programs do not affect it. The exit code is 1 if the ratio
exceeds LARGEST.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from rths_nodes.app import hosts
from rths_nodes.loop.stages.frozen import FrozenSensors

LARGEST = 1.02
"""Largest ratio of a sample with the watch to one without it."""


def cost(scenario: str, duration: float) -> float:
    """Return the processor time of a sample of the embedded loop, s."""
    began = time.process_time()
    samples = hosts.run(scenario, [f"duration={duration:g}"], keep=False, engine="python").samples
    return (time.process_time() - began) / samples


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenario", default="chen_ricles_2010")
    parser.add_argument("--duration", type=float, default=10.0, help="s")
    parser.add_argument("--turns", type=int, default=30)
    options = parser.parse_args()
    watch: Callable[..., None] = FrozenSensors.add
    cost(options.scenario, options.duration)
    pairs = []
    for _ in range(options.turns):
        with_it = cost(options.scenario, options.duration)
        FrozenSensors.add = lambda *row: None  # type: ignore[method-assign]
        pairs.append((with_it, cost(options.scenario, options.duration)))
        FrozenSensors.add = watch  # type: ignore[method-assign]
    with_it, without = (min(each) for each in zip(*pairs, strict=True))
    ratio = with_it / without
    print(f"with {1e6 * with_it:.2f} us, without {1e6 * without:.2f} us a sample, ratio {ratio:.3f}")
    return int(ratio > LARGEST)


if __name__ == "__main__":
    raise SystemExit(main())
