# SPDX-License-Identifier: Apache-2.0
"""Description of a test in a few lines before it: excitation, natural periods, stiffness of both parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rths_nodes.analysis.share_of_structure import partition
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Array
from rths_nodes.core.validation import to_data
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.numerical.ground_motions.record import Record

LISTED = 3
"""Natural periods that are told, the longest ones."""


def described(assembly: Assembly) -> Iterator[str]:
    """Excitation with its peak and duration; periods of the whole structure; stiffness of each part."""
    yield f"excitation: {', '.join(_excitation(assembly))}"
    if assembly.scenario.structure is None:
        elsewhere = registry.class_of("integrator", assembly.scenario.integrator).external
        where = "it is computed in another process" if elsewhere else "the displacements are prescribed"
        yield f"structure: none is computed here, {where}"
        return
    expected = {
        name: axis.rig_axis.stiffness
        for name, axis in assembly.scenario.axes.items()
        if axis.rig_axis is not None and axis.rig_axis.stiffness is not None
    }
    try:
        found = partition(assembly, expected)
    except ConfigError as error:
        yield f"periods and stiffness: not taken apart: {error}"
        return
    if len(found.frequencies):
        periods = [f"{1.0 / f:.4g}" if f > 0.0 else "none" for f in found.frequencies[:LISTED].tolist()]
        more = f" s, the longest of {len(found.frequencies)}" if len(found.frequencies) > LISTED else " s"
        yield f"natural periods of the whole structure: {', '.join(periods)}{more}"
    else:
        yield "natural periods: not known, the part under test is not stated"
    source = found.source or "not stated, neither by the structure nor by a model of the specimen"
    tested = f"{_diagonal(found.experimental[2])} N/m, " if found.source else ""
    yield f"stiffness: numerical {_diagonal(found.numerical[2])} N/m; experimental {tested}{source}"


def _diagonal(matrix: Array) -> str:
    values = np.diag(np.asarray(matrix)).tolist()
    if len(values) <= LISTED:
        return ", ".join(f"{value:.4g}" for value in values)
    return f"{min(values):.4g} to {max(values):.4g} (diagonal of {len(values)})"


def _excitation(assembly: Assembly) -> Iterator[str]:
    scenario = assembly.scenario
    shaken = scenario.structure is not None or scenario.integrator.ground is not None
    prescribed = not shaken
    params: object = scenario.ground_motion if shaken else scenario.integrator.displacement
    if params is None:
        yield "that of the client of the integrator, which is not known here"
        return
    data = to_data(params)
    yield data.get("record") or (Path(str(data["file"])).name if data.get("file") else str(data["type"]))
    motion = registry.build("ground_motion", params, scenario.seed)
    times = scenario.step * np.arange(scenario.steps - scenario.soft_start_steps + 1)
    peak = float(np.abs(motion.sample(times) if prescribed else assembly.ground_acceleration).max())
    yield f"peak {1e3 * peak:.4g} mm" if prescribed else f"peak {peak:.4g} m/s^2"
    whole = f" of {motion.step * (len(motion.values) - 1):.4g} s" if isinstance(motion, Record) else ""
    yield f"{scenario.duration:g} s{whole}"
