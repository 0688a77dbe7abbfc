# SPDX-License-Identifier: Apache-2.0
"""Parts of a loop for the executive: the loop over kernels and the safe stop."""

from __future__ import annotations

import re

from rths_nodes.laboratory.ports.udp import UdpPort
from rths_nodes.loop.compiled.parts import Parts, parts_of
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.supervision import safe_stop


def live_parts(assembly: Assembly) -> Parts | str:
    """Return the parts of a loop for the executive, or the reason why the executive cannot run the scenario."""
    scenario = assembly.scenario
    port: object = assembly.port
    parts = remote_parts(assembly) if type(port) is UdpPort else parts_of(assembly)
    if isinstance(parts, str):
        return parts
    if scenario.bridge.pauses:
        return "bridge.when_late = pause requires an actuator node"
    if scenario.bridge.overruns is not None:
        return "bridge.overruns requires an actuator node, which counts late periods"
    if scenario.hops.depth:
        return f"hops.depth = {scenario.hops.depth} requires nodes that exchange messages"
    stop = safe_stop.SafeStop(scenario.limits, scenario.dt, None, scenario.stop_groups)
    kernels = dict(parts.kernels) | {"stop_begin": safe_stop.begin, "stop_command": safe_stop.command_after}
    states = {name: part for name, part in parts.states.items() if name != "work"}
    states |= {"stopping": 0, "stop": stop.state, "stop_done": 0.0, "stop_samples": 0.0}
    sent = {f"before_{axis}": parts.states[f"sent_{axis}"] for axis in range(parts.kind.axes)}
    return parts._replace(
        kind=parts.kind._replace(live=True),
        kernels=kernels,
        constants=dict(parts.constants) | {"of_stop": stop.groups},
        states=states | sent,
    )


OF_RIG = re.compile(
    r"(of_actuator|of_sensors|of_rig|resolution|range|actuator|sense|sensed|rig)(_.*)?|driven|line|at|inputs"
)
"""Pattern of the names of kernels, constants and states of a simulated rig."""


def remote_parts(assembly: Assembly) -> Parts | str:
    """Return the parts of a loop whose rig uses the port ``udp``, or the reason why the loop cannot run."""
    params = assembly.scenario.port
    assert isinstance(params, UdpPort.Params)
    if not params.emulator:
        return "only the nodes can drive a real rig (port.emulator = false)"
    if params.trigger:
        return "port.trigger requires an actuator node"
    simulator = f"port={{type: simulator, transport_samples: {params.transport_samples}}}"
    parts = parts_of(Assembly(override(assembly.scenario, [simulator])))
    if isinstance(parts, str):
        return parts
    kind = parts.kind
    if kind.inputs or kind.channels:
        return "auxiliary channels of a rig over UDP require an actuator node"
    if kind.lead:
        return "integrator.force_lead requires an actuator node if the rig is connected over UDP"
    no = (False,) * kind.axes
    monitor = MonitorStage.of(assembly)
    monitor.target(parts.target)
    return parts._replace(
        kind=kind._replace(remote=True, coupled_rig=False, transport=False, converts=True, sensors=no, noise=no),
        kernels={name: part for name, part in parts.kernels.items() if not OF_RIG.fullmatch(name)},
        constants={name: part for name, part in parts.constants.items() if not OF_RIG.fullmatch(name)},
        states={name: part for name, part in parts.states.items() if not OF_RIG.fullmatch(name)} | {"doubt": 0},
        noise=[None] * kind.axes,
        monitor=monitor,
    )
