# SPDX-License-Identifier: Apache-2.0
"""Compare an adaptive compensator with three others, on four structures with 51 plants each."""

from typing import Any

import rths_nodes
from rths_nodes.control.compensators.per_axis import PerAxis
from rths_nodes.core import Kernel, number, params


def step(k: Any, s: Any, x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool) -> Any:
    """Return the new state and the command x + delay v.

    The delay is adapted to reduce the correlation of the error with the velocity.
    """
    _, gain, decay = k
    delay, product, square, x_before, v_before = s
    product = decay * product + (x_before - m) * v_before
    square = decay * square + v_before * v_before
    if not rests:
        delay = min(max(delay + gain * product / (square + 1e-3), 0.0), 0.05)
    return (delay, product, square, x, v), x + delay * v


class Correlated(PerAxis):
    @params
    class Params:
        delay: float = number("initial delay", "s", 0.02, at_least=0.0, at_most=0.05)
        gain: float = number("fraction of the remaining delay learned per second", "1/s", 1.0, at_least=0.0)

    KERNEL = Kernel(lambda p, dt: (p.delay, p.gain * dt, 1.0 - dt), lambda k: (k[0], 0.0, 0.0, 0.0, 0.0), step)


if __name__ == "__main__":
    laws = [Correlated, "derivative_feedforward", "model_based", "identified_inverse"]
    changes = {"duration": 10.0, "force_lead": None}
    board = rths_nodes.scoreboard("rths_benchmark_2020", changes, laws=laws, plants=50, noise_seeds=1)
    print(board.to_dataframe().iloc[:, [0, 1, 3, 4, 8]].to_string(index=False))
    board.plot().figure.savefig("own_compensator.png", dpi=200)
