# SPDX-License-Identifier: Apache-2.0
"""Start-up check of our serialization against the installed messages."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from rclpy.serialization import deserialize_message, serialize_message

from rths_nodes.core.durations import SECOND
from rths_nodes.core.samples import MODE_DISPLACEMENT, Command, Measurement, Target
from rths_nodes.core.wire.codec import Codec
from rths_nodes.core.wire.run_mark import RunMark
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.axis_layout import takes_force
from rths_nodes.ros.transport.wiring import Place

msg = importlib.import_module("rths_nodes.msg")


def codec_of(place: Place, assembly: Assembly, run: RunMark) -> Codec:
    """Return the codec of the node at ``place``. Raises RuntimeError if the installed messages differ."""
    if place.axis:  # without Targets
        return Codec(0, 1, 0, run=run, n_force=int(takes_force(assembly.scenario, place.axis)))
    codec = assembly.codec(run)
    check(codec)
    return codec


def check(codec: Codec) -> None:
    """Raise RuntimeError if the middleware encodes or decodes ``codec`` differently; padding is ignored."""
    n_dof, n_axes, n_state, n_auxiliary, n_inputs = codec.sizes
    count = 68 + 6 * n_dof + 8 * n_axes + n_state + 2 * n_auxiliary + 2 * n_inputs
    numbers = iter(np.linspace(0.1, 9.7, count).tolist())

    def some(count: int) -> Any:
        return np.array([next(numbers) for _ in range(count)])

    stamp, modes = 3 * SECOND + 7, bytes([MODE_DISPLACEMENT]) * n_axes
    target: Any = Target(5, *[some(n_dof) for _ in range(6)], some(n_inputs), 1, some(4))  # type: ignore[misc,call-arg]
    command = Command(6, some(n_axes), some(n_axes), some(n_inputs), 2, modes)
    measured = Measurement(7, some(n_axes), some(n_axes), some(n_axes), some(n_auxiliary), 4, modes, 3, 1)
    state = some(n_state).tolist()
    samples: Any = (
        (codec.pack_target(target, stamp), msg.Target, codec.unpack_target, codec.pack_target, target),
        (codec.pack_command(command, stamp), msg.Command, codec.unpack_command, codec.pack_command, command),
        (
            codec.pack_measurement(measured, stamp),
            msg.Measurement,
            codec.unpack_measurement,
            codec.pack_measurement,
            measured,
        ),
    )
    for data, kind, unpack, pack, sent in samples:
        typed = deserialize_message(data, kind)
        back, back_stamp = unpack(serialize_message(typed))
        if pack(back, back_stamp) != data or not _same(typed, sent, stamp):
            raise RuntimeError(
                f"{kind.__name__}: the installed message and msg/{kind.__name__}.msg differ; build again"
            )
    typed = deserialize_message(codec.pack_state(state, 8, 0, stamp), msg.CompensatorState)
    if typed.sample != 8 or list(typed.values) != state:
        raise RuntimeError("CompensatorState: the installed message and its .msg differ; build again")


def _same(typed: Any, sent: Any, stamp: int) -> bool:
    if typed.header.stamp.sec * SECOND + typed.header.stamp.nanosec != stamp:
        return False
    for name in sent.__slots__:
        value = getattr(sent, name)
        if name == "energies":
            got: Any = [getattr(typed, f"{kind}_energy") for kind in ("input", "kinetic", "strain", "damping")]
        else:
            got = getattr(typed, name)
        if isinstance(value, bytes):
            got = bytes(got)
        if (list(got) != value.tolist()) if isinstance(value, np.ndarray) else got != value:
            return False
    return True
