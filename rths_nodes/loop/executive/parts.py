# SPDX-License-Identifier: Apache-2.0
"""Parts of a loop for the executive: the loop over kernels with the safe stop, or the reason for none."""

from __future__ import annotations

from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.supervision import safe_stop


def why_not_live(assembly: Assembly) -> str:
    """Return why the executive cannot run a scenario, or empty."""
    parts = live_parts(assembly)
    return parts if isinstance(parts, str) else ""


def live_parts(assembly: Assembly) -> Parts | str:
    """Return the parts of a loop for the executive, or the reason why the scenario has none."""
    parts, scenario = parts_of(assembly), assembly.scenario
    if isinstance(parts, str):
        return parts
    if scenario.bridge.pauses:
        return "bridge.when_late = pause: needs an actuator node"
    if scenario.bridge.overruns is not None:
        return "bridge.overruns: late periods are counted by an actuator node"
    if scenario.hops.depth:
        return f"hops.depth = {scenario.hops.depth}: messages travel between nodes"
    stop = safe_stop.SafeStop(scenario.limits, scenario.dt, None, scenario.stop_groups)
    kernels = dict(parts.kernels) | {"stop_begin": safe_stop.begin, "stop_command": safe_stop.command_after}
    states = parts.states | {"stopping": 0, "stop": stop.state, "stop_done": 0.0, "stop_samples": 0.0}
    sent = {f"before_{axis}": parts.states[f"sent_{axis}"] for axis in range(parts.kind.axes)}
    return parts._replace(
        kind=parts.kind._replace(live=True),
        kernels=kernels,
        constants=dict(parts.constants) | {"of_stop": stop.groups},
        states=states | sent,
    )
