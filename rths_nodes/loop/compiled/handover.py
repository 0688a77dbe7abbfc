# SPDX-License-Identifier: Apache-2.0
"""Handover of a test from the loop over kernels to the embedded loop, at a sample from which a Target follows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from rths_nodes.control.compensators.per_axis import Coupled, PerAxis
from rths_nodes.core.data import Data
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.ports.simulator import SeparateAxes
from rths_nodes.loop.compiled.history import Rows
from rths_nodes.loop.compiled.parts import Parts
from rths_nodes.loop.embedded import Loop


def last_sample(loop: Loop, reached: int) -> int:
    """Return the sample of the handover, two Commands before sample ``reached``; 0 if there is none."""
    substeps = loop.scenario.samples_per_step
    sample = (reached - 2) // substeps * substeps
    return sample if sample > (loop.scenario.soft_start_steps + 1) * substeps else 0


def supported(loop: Loop, parts: Parts) -> bool:
    """Return whether all stages of ``loop`` can continue from states of kernels."""
    law = loop.assembly.compensator
    plain = type(law).bound in (PerAxis.bound, Coupled.bound)
    return plain and not (parts.kind.control or loop.scenario.hops.depth)


def begin(loop: Loop, parts: Parts, states: Data, rows: Rows, sample: int) -> Measurement:
    """Take the connected stages of ``loop`` to ``sample``, the last of ``rows``; return its Measurement.

    ``states`` of the kernels after it, by name.
    """
    a, axes, step = loop.assembly, parts.kind.axes, states["step"]
    loop.rig.first(sample, [states[f"sent_{axis}"] for axis in range(axes)])
    windows = [states[f"window_{axis}"][:-1] for axis in range(axes)] if parts.kind.lead else []
    loop.substructure.resume(step, [*map(list, zip(*windows, strict=True))])
    solver: Any = a.integrator
    state = like(solver.state, states["solver"])
    solver.resume(step - loop.scenario.soft_start_steps, np.array(states["pose"]), state)
    _resume_commands(loop, parts, states)
    _resume_port(a.port, axes, states, sample)
    now = {name: values[sample] for name, values in rows["measurement"].items()}
    channels = np.array(states.get("channels", parts.measured.auxiliary))
    moved, force, command, flags = now["displacement"], now["force"], now["command"], int(now["flags"][0])
    return Measurement(sample, moved, force, command, channels, flags, parts.measured.control_mode)


def _resume_commands(loop: Loop, parts: Parts, states: Data) -> None:
    ramp, law = loop.assembly.ramp, loop.assembly.compensator
    ramp.start(parts.target)
    before = states["x_before"].tolist() if "x_before" in states else [*_numbered("x_before", states)]
    loop.commands.resume(states["step"], before)
    held: Any = ramp
    if not held.hands_on:
        held.take(lambda before: [*map(like, before, _numbered("ramp", states))])
    if isinstance(law, PerAxis):
        law.states[:] = map(like, law.states, _numbered("law", states))
    elif isinstance(law, Coupled):
        law.current = like(law.current, next(_numbered("law", states)))


def _resume_port(port: Any, axes: int, states: Data, sample: int) -> None:
    """Take rig, sensors and the Commands in transport to ``sample``."""
    rig = port.parts.rig
    if isinstance(rig, SeparateAxes):
        rig.states[:] = map(like, rig.states, _numbered("rig", states))
    else:
        rig.state = like(rig.state, states["rig"])
    for axis, pair in enumerate(port.parts.sensors):
        if not pair.perfect:
            pair.take(partial(like, value=states[f"sensed_{axis}"]))
    none = np.zeros(len(port.auxiliary_inputs))
    line: Array = np.reshape(states.get("line", ()), (-1, axes))
    port.resume(sample, [(row, none) for row in np.roll(line, -states.get("at", 0), axis=0).tolist()])


def _numbered(name: str, states: Data) -> Iterator[Any]:
    """Yield the only state ``name``, or ``name_0``, ``name_1`` ..."""
    names = [name] if name in states else [f"{name}_{number}" for number in range(len(states))]
    return (states[key] for key in names if key in states)


def like(sample: Any, value: Any) -> Any:
    """Return ``value`` with lists where ``sample`` has them; compiled code has arrays there."""
    if isinstance(sample, list) and isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(sample, (tuple, list)):
        kept: Any = type(sample)
        items = map(like, sample, value)
        return kept(*items) if hasattr(sample, "_fields") else kept(items)
    return value
