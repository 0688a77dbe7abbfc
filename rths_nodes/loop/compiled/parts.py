# SPDX-License-Identifier: Apache-2.0
"""Parts of the loop over kernels for a scenario: kernels, constants and initial states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.control.ramps import OfKernel
from rths_nodes.core.arithmetic import all_finite, dot, numbers, put, record, record_across
from rths_nodes.core.control import SemiActive, SetupOfKernel
from rths_nodes.core.data import Data
from rths_nodes.core.kernels import Function, copied, foreign, inherits, is_plain
from rths_nodes.core.parameters import type_of
from rths_nodes.core.samples import FLAG_SATURATED, Array, Measurement, Target
from rths_nodes.laboratory.corrections import shown_forces
from rths_nodes.laboratory.ports.simulator import SeparateAxes, Simulator
from rths_nodes.laboratory.sensors import Noise, converted
from rths_nodes.loop.compiled.text import APART, FEW, HANDED_ON, TOGETHER, Kind, text_of
from rths_nodes.loop.indices import energy_monitor, tracking
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.stages.command import in_time
from rths_nodes.loop.stages.monitor import MonitorStage
from rths_nodes.loop.stages.numerical import NumericalStage, force_lead_of
from rths_nodes.loop.supervision import limits
from rths_nodes.loop.supervision.levels import LevelWatch
from rths_nodes.numerical.integrators.dynamics import Stepped
from rths_nodes.numerical.reductions import Observation


class Parts(NamedTuple):
    """Kernels, constants and states of one run. The run updates the states in place."""

    kind: Kind
    kernels: Mapping[str, Function]
    constants: Mapping[str, object]
    states: Data
    excitation: object
    external: Array
    """External force at each step, ``(n, n_dof)`` N."""
    ground: object
    """Ground acceleration at each step, m/s^2."""
    chance: object
    """One random number per step, for the controller of the auxiliary inputs."""
    noise: list[Noise | None]
    channel_noise: Noise | None
    target: Target
    measured: Measurement
    true: Measurement
    """Exact state at Measurement 0, without sensor errors. ``target`` is Target 0, ``measured`` Measurement 0."""
    monitor: MonitorStage

    @property
    def text(self) -> str:
        where = {name: f"{function.__module__}.{function.__qualname__}" for name, function in self.kernels.items()}
        return text_of(self.kind, where, list(self.constants), list(self.states))


class Resists(Exception):
    """Raised if a scenario cannot run in the loop over kernels; the message is the reason."""


def parts_of(assembly: Assembly) -> Parts | str:
    try:
        return _Gathered(assembly).parts()
    except Resists as reason:
        return str(reason)


class _Gathered:
    def __init__(self, assembly: Assembly) -> None:
        self._a, self._scenario = assembly, assembly.scenario
        functions = all_finite, record, record_across, numbers, put, limits.acting, limits.broken_alone
        self._kernels: dict[str, Function] = {function.__name__: function for function in functions}
        self._kernels |= {"index_step": tracking.step, "work_step": energy_monitor.step}
        self._constants: dict[str, object] = {}
        self._states: Data = {}
        self._facts: Data = {}

    def parts(self) -> Parts:
        self._refuse()
        stage = NumericalStage(self._a)
        target = stage.first()
        self._numerical(target)
        if self._scenario.soft_start is not None:
            self._soft_start(stage, target)
        self._between(target)
        self._law()
        measured, true = self._rig()
        self._limits(measured)
        monitor = self._indices(target, measured)
        ground, chance = self._control()
        for name, kernel in self._kernels.items():
            if held := foreign(kernel):
                kernel_name = f"{name}: {kernel.__qualname__}"
                raise Resists(f"{kernel_name} contains the object {held}, which a kernel cannot use")
        for name, value in (self._constants | self._states).items():
            if not is_plain(value):
                raise Resists(f"{self._owner(name)}: this part is computed by an object, not by a kernel")
        noise = [pair.noise if pair.noise.any else None for pair in self._port.sensors]
        integrator: Any = self._a.integrator
        return Parts(
            Kind(**self._facts),
            self._kernels,
            self._constants,
            self._states,
            integrator.excitation,
            np.ascontiguousarray(self._a.external_force),
            ground,
            chance,
            noise,
            self._port.auxiliary if self._facts["channel_noise"] else None,
            target,
            measured,
            true,
            monitor,
        )

    def _no_kernel(self, family: str) -> Resists:
        types = {path: type_of(part) for path, part, _ in self._scenario.parts()}
        return Resists(f"{family}.type = {types[family]!r}: this type has no kernel")

    def _owner(self, name: str) -> str:
        group, _, number = name.rpartition("_")
        if group in ("of_actuator", "rig"):
            axis = list(self._scenario.axes)[int(number)]
            return f"axes.{axis}.actuator or axes.{axis}.specimen"
        return {"of_integrator": "integrator or structure.restoring_force", "of_rig": "rig"}.get(name, name)

    def _refuse(self) -> None:
        s, a = self._scenario, self._a
        port: object = a.port
        if type(port) is not Simulator:
            raise Resists(
                f"port.type = {type(s.port).type_name!r}: only a simulator of displacement axes has a kernel"
            )
        if port.parts is None:
            raise Resists("port: the simulated rig has an injected fault or additional channels")
        self._port = port.parts
        names, acting = a.port.auxiliary_names, s.levels.in_effect(True, s.servo_rate)
        levels = LevelWatch(s.limits, s.dt, names, None, acting, s.levels.quantities)
        steep = s.monitor.tracking_indicator_rate, s.monitor.tracking_indicator_rate_over_amplitude
        frozen = s.monitor.stuck_displacement, s.monitor.stuck_force
        reasons: dict[str, object] = {
            f"axes: the mode of {', '.join(s.force_axes)} is force": s.force_axes,
            "updating: the copies of the specimen are updated outside the loop": s.updating,
            "monitor.corridor: only the embedded loop can check a corridor": s.monitor.corridor,
            "monitor.tracking_indicator_rate: only the embedded loop can check this rate": steep != (None, None),
            "monitor.stuck_displacement, monitor.stuck_force: only the embedded loop can check these limits": (
                frozen != (None, None)
            ),
            "limits.levels: only the embedded loop can check levels": levels,
            "port: a second channel measures the force": shown_forces(names, list(s.axes)),
            "interface: a Target contains only a part of the model": type(a.observation) is not Observation,
        }
        for reason, applies in reasons.items():
            if applies:
                raise Resists(reason)

    def _numerical(self, target: Target) -> None:
        solver, scenario = self._a.integrator, self._scenario
        if not isinstance(solver, Stepped) or not inherits(type(solver), Stepped, "step", "finish"):
            raise self._no_kernel("integrator")
        self._kernels["integrate"] = solver.kernel.step
        self._states["solver"] = copied(solver.state)
        self._states["pose"] = tuple(solver.displacement.tolist())
        ratio, substeps = scenario.time_ratio, scenario.samples_per_step
        self._constants |= {"samples": scenario.samples, "substeps": substeps, "of_integrator": solver.constants}
        self._constants["ratio"] = ratio
        self._states |= {"substep": 0, "step": 0}
        lead = force_lead_of(scenario, solver)
        self._facts |= {
            "axes": len(scenario.axes),
            "dofs": len(target.displacement),
            "in_floats": solver.in_floats,
            "in_tuples": solver.in_tuples,
            "soft_start": scenario.soft_start is not None,
            "ratio": ratio != 1,
            "lead": 0 if lead is None else len(lead.slope),
            "in_time": self._a.late_velocity,
        }
        if lead is not None:
            self._kernels["dot"] = dot
            self._constants["slope"] = tuple(map(float, lead.slope))
            for axis in range(len(scenario.axes)):
                self._states[f"window_{axis}"] = [0.0] * len(lead.slope)

    def _soft_start(self, stage: NumericalStage, first: Target) -> None:
        before, substeps = self._scenario.soft_start_steps, self._scenario.samples_per_step
        rest = np.zeros(len(self._scenario.axes))
        targets = [first]
        for step in range(before):
            answer = stage.next(Measurement(step * substeps, rest, rest, rest))
            assert answer is not None
            targets.append(answer)
        rows = ("displacement", "velocity", "acceleration")
        arrays = [np.array([getattr(target, name) for target in targets]) for name in rows]
        flags = np.array([target.flags for target in targets], np.int64)
        of_soft = dict(zip(("soft_x", "soft_v", "soft_a"), arrays, strict=True))
        self._constants |= of_soft | {"soft_flags": flags, "before": before}
        if self._facts["dofs"] > FEW:
            self._constants["nothing"] = np.zeros(len(first.displacement))
        self._states["flags"] = first.flags
        self._kernels |= {"index_anew": tracking.anew, "work_anew": energy_monitor.start}

    def _between(self, target: Target) -> None:
        ramp, setup, scenario = self._a.ramp, self._a.setup, self._scenario
        if not isinstance(ramp, OfKernel):
            raise self._no_kernel("ramp")
        kernel, k = ramp.bound()
        x, v, a = target.displacement, target.velocity, target.acceleration
        manner, still = HANDED_ON, False
        if ramp.hands_on:
            pass
        elif ramp.apart:
            manner, rows = APART, zip(x.tolist(), v.tolist(), a.tolist(), strict=True)
            self._states |= {f"ramp_{dof}": copied(kernel.start(k, *value)) for dof, value in enumerate(rows)}
        else:
            manner, state = TOGETHER, kernel.start(k, x.copy(), v.copy(), a.copy())
            self._states["ramp"] = copied(state)
            still = not isinstance(kernel.step(k, copied(state), 1)[2], np.ndarray)
        self._facts |= {"ramp": manner, "still": still}
        if manner != HANDED_ON:
            self._kernels |= {"ramp_follow": kernel.follow, "ramp_step": kernel.step}
            self._constants["of_ramp"] = k
        if self._facts["in_time"]:
            step = scenario.samples_per_step * scenario.dt
            self._kernels["in_time"] = in_time
            self._constants |= {"step_s": step, "half_s": 0.5 * step}
            if manner == TOGETHER:
                self._states["x_before"] = x.copy()
            else:
                self._states |= {f"x_before_{dof}": value for dof, value in enumerate(x.tolist())}
        if not isinstance(setup, SetupOfKernel):
            raise self._no_kernel("setup")
        axes, forces, of_setup, on_arrays = setup.bound()
        self._kernels |= {"setup_axes": axes, "setup_forces": forces}
        self._constants["of_setup"] = of_setup
        self._facts["setup_on_arrays"] = on_arrays
        for axis in range(len(scenario.axes)):
            self._states |= {f"{name}_{axis}": 0.0 for name in ("c", "cv", "ca")}

    def _law(self) -> None:
        bound = self._a.compensator.bound()
        if bound is None:
            raise self._no_kernel("compensator")
        self._kernels["law_step"] = bound.step
        self._constants["of_law"] = bound.constants
        names = ["law"] if bound.coupled else [f"law_{axis}" for axis in range(len(bound.states))]
        states = [copied(state) for state in bound.states]
        self._states |= dict(zip(names, states, strict=True))
        counts = []
        for function, shown in enumerate(bound.shown):
            counts.append(len(shown(bound.constants, states[0])))
            self._kernels[f"law_shown_{function}"] = shown
        if bound.renewed is not None:
            self._kernels["law_renewed"] = bound.renewed
        if sum(counts) * len(states) != len(self._a.names.state):
            raise Resists("compensator: the numbers of reported and declared values differ")
        self._facts |= {"coupled_law": bound.coupled, "shown": tuple(counts), "renewed": bound.renewed is not None}

    def _rig(self) -> tuple[Measurement, Measurement]:
        rig: Any = self._port.rig
        n, port = len(self._scenario.axes), self._a.port
        coupled = not isinstance(rig, SeparateAxes)
        places = pushes = np.zeros(n)
        true = np.zeros(0)
        if coupled:
            if (bound := rig.bound()) is None:
                raise self._no_kernel("rig")
            kernel, k = bound
            self._kernels["rig_step"], self._constants["of_rig"] = kernel.step, k
            state = kernel.rest(k)
            self._states |= {"rig": copied(state), "driven": np.zeros(len(self._scenario.axes))}
            places, _, pushes, true = kernel.shown(k, state)
        else:
            for axis, (actuator, k) in enumerate(rig.axes):
                self._kernels[f"actuator_{axis}"], self._constants[f"of_actuator_{axis}"] = actuator.step, k
                self._states[f"rig_{axis}"] = copied(actuator.rest(k))
        inputs = len(port.auxiliary_inputs)
        # a delay by hops has the same effect as a delay by the port
        transport = self._port.transport + self._scenario.hops.depth
        if coupled:
            self._states["inputs"] = np.zeros(inputs)
        if transport:
            self._states |= {"line": [0.0] * (transport * n), "at": 0}
            if coupled:
                self._states["input_line"] = np.zeros((transport, inputs))
        if self._port.converters:
            self._kernels["converted"] = converted
            for axis, (resolution, largest) in enumerate(self._port.converters):
                self._constants |= {f"resolution_{axis}": resolution, f"range_{axis}": largest}
        self._facts |= {"coupled_rig": coupled, "inputs": inputs, "transport": transport > 0}
        self._facts["converts"] = bool(self._port.converters)
        return self._sensors(places.tolist(), pushes.tolist(), true)

    def _sensors(self, places: list[float], pushes: list[float], true: Array) -> tuple[Measurement, Measurement]:
        moved, forces, flags = [], [], 0
        pairs, auxiliary = self._port.sensors, self._port.auxiliary
        for axis, (pair, x, f) in enumerate(zip(pairs, places, pushes, strict=True)):
            kernel, k = pair.bound()
            pair.noise.reset()
            if not pair.perfect:
                one, other = pair.noise.ahead(1)[0].tolist() if pair.noise.any else (0.0, 0.0)
                self._kernels[f"sense_{axis}"], self._constants[f"of_sensors_{axis}"] = kernel.step, k
                state, (x, f, at_end) = kernel.step(k, kernel.rest(k), x, f, one, other, 0)
                self._states[f"sensed_{axis}"] = copied(state)
                flags |= FLAG_SATURATED if at_end else 0
            moved.append(x)
            forces.append(f)
            self._states |= {f"m_{axis}": x, f"f_{axis}": f}
        self._facts |= {
            "sensors": tuple(not pair.perfect for pair in pairs),
            "noise": tuple(pair.noise.any for pair in pairs),
            "channels": len(true),
            "channel_noise": auxiliary.any,
        }
        auxiliary.reset()
        channels = true + auxiliary.ahead(1)[0] if auxiliary.any else true.copy()
        if len(true):
            self._states["channels"] = channels.copy()
        command, modes = np.zeros(len(places)), self._a.port.control_mode
        shown = Measurement(0, np.array(moved), np.array(forces), command, channels, flags, modes)
        return shown, Measurement(0, np.array(places), np.array(pushes), command, true.copy(), flags, modes)

    def _limits(self, measured: Measurement) -> None:
        scenario, port = self._scenario, self._a.port
        stopped, names = scenario.stop_groups, (port.auxiliary_inputs, port.auxiliary_names)
        bounds = limits.LimitCheck(scenario.limits, scenario.dt, *names, None, stopped)
        if reason := bounds.measurement(measured, measured.command.tolist()):
            raise Resists(f"Measurement 0: {reason}")
        table, in_a_row, last = bounds.measurements
        counts = np.array(in_a_row, np.int64), np.array(last, np.int64)
        self._constants |= {"moves": tuple(bounds.moves), "measurements": (table, *counts)}
        self._states |= {f"sent_{axis}": value for axis, value in enumerate(measured.command.tolist())}
        self._facts |= {"together": bool(bounds.groups), "beside": bounds.beside}
        if bounds.groups:
            self._kernels["broken_together"] = limits.broken_together
            longest = max(map(len, bounds.groups))  # listing an axis twice has no effect
            groups = [(*group, *[group[0]] * (longest - len(group))) for group in bounds.groups]
            self._constants["groups"] = tuple(groups)
        if bounds.beside:
            self._kernels["of_errors"] = limits.of_errors
            self._constants["zeros"] = tuple(bounds.zeros)

    def _indices(self, target: Target, measured: Measurement) -> MonitorStage:
        monitor = MonitorStage.of(self._a)
        monitor.target(target)
        monitor.measurement(measured)
        monitor.monitor.energy.take(measured.sample)
        tracking = monitor.monitor.tracking
        for axis, (k, state) in enumerate(zip(tracking.constants, tracking.states, strict=True)):
            self._constants[f"of_index_{axis}"], self._states[f"index_{axis}"] = k, copied(state)
        self._states["work"] = copied(monitor.monitor.energy.now)
        return monitor

    def _control(self) -> tuple[object, object]:
        controller = self._a.controller
        self._facts["control"] = controller is not None
        if controller is None:
            return None, None
        if (bound := controller.bound()) is None:
            raise self._no_kernel("semi_active")
        kernel, k, state = bound
        self._kernels["control"], self._constants["of_control"] = kernel.step, k
        self._states["controller"] = copied(state)
        ground = self._a.ground_acceleration
        chance = np.zeros(len(ground))
        if not inherits(type(controller), SemiActive, "chance"):
            chance = np.array([controller.chance() for _ in range(len(ground))])
            controller.reset()
        return ground, chance
