# SPDX-License-Identifier: Apache-2.0
"""Schema of a scenario, with one validated section for each component of the loop."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rths_nodes.core import inputs, registry
from rths_nodes.core.control import Setup
from rths_nodes.core.data import Data
from rths_nodes.core.distributions import check_scatter
from rths_nodes.core.errors import ConfigError, Problems, join, show
from rths_nodes.core.limits import Limits, WholeLevels
from rths_nodes.core.parameters import (
    ChecksScenario,
    OfCompensatorParams,
    OfGroundMotionParams,
    OfIntegratorParams,
    OfParams,
    OfPortParams,
    OfSemiActiveParams,
    OfStructureParams,
    TestContext,
    component,
    integer,
    mapping,
    number,
    params,
    section,
    sections,
    text,
    texts,
)
from rths_nodes.core.samples import FLAG_RESTING, FLAG_SOFT_START, ROUNDING, Array
from rths_nodes.core.validation import to_data, walk, walk_declared
from rths_nodes.laboratory.calibration import RigAxis, Similitude
from rths_nodes.laboratory.force_control import ForceControl
from rths_nodes.laboratory.sensors import Output, Sensors
from rths_nodes.loop.options import AUTO, EXECUTIVE
from rths_nodes.loop.scenario.force_axes import AXIS_MODES, FORCE, Load, check_force_axes, check_mode
from rths_nodes.loop.scenario.rig_file import ENGINE, RigFile, RigHead, check_engine
from rths_nodes.loop.scenario.updating import Updating, check_updating
from rths_nodes.loop.supervision.bridges import BridgeParams
from rths_nodes.loop.supervision.heartbeat import HeartbeatParams
from rths_nodes.loop.supervision.hops import HopsParams
from rths_nodes.loop.supervision.monitor import MonitorParams
from rths_nodes.numerical.reductions import check_names


@params
class SoftStart:
    """Sine motion of all axes, in rig time. Its amplitude rises, remains constant, and falls."""

    amplitude: float = number("largest displacement of each axis", "m", more_than=0.0)
    frequency: float = number("frequency of the sine", "Hz", 3.0, more_than=0.0)
    rise_time: float = number("time in which the amplitude rises", "s", 2.0, at_least=0.0)
    duration: float = number(
        "time until the amplitude begins to fall, including rise_time", "s", 5.0, more_than=0.0
    )
    fall_time: float = number(
        "time in which the amplitude falls, with adaptation suspended", "s", 1.0, at_least=0.0
    )
    rest_time: float = number("time at rest before the test, with adaptation suspended", "s", 0.5, at_least=0.0)

    def validate(self, path: str) -> None:
        if self.rise_time > self.duration:
            raise ConfigError(
                f"{path}.rise_time = {self.rise_time:g} s: must be <= {path}.duration = {self.duration:g} s"
            )
        if self.total > 3600.0:
            raise ConfigError(f"{path}: takes {self.total:g} s in total, but must take <= 3600 s")

    @property
    def total(self) -> float:
        """Time from the beginning of the soft start to the beginning of the test, s."""
        return self.duration + self.fall_time + self.rest_time

    def steps(self, step: float) -> int:
        return math.ceil(self.total / step - ROUNDING)

    def motion(self, step: float) -> tuple[Array, Array, Array, list[int]]:
        """Return displacement (m), velocity (m/s), acceleration (m/s^2) and flags of Targets ``step`` s apart."""
        times = step * np.arange(self.steps(step) + 1)
        fallen = self.duration + self.fall_time
        corners, heights = [0.0, self.rise_time, self.duration, fallen, fallen + 1.0], [0.0, 1.0, 1.0, 0.0, 0.0]
        envelope = self.amplitude * np.interp(times, corners, heights)
        ends = np.searchsorted(corners, times, side="right").clip(1, len(corners) - 1)
        slope = self.amplitude * (np.diff(heights) / np.maximum(np.diff(corners), 1e-12))[ends - 1]
        omega = 2.0 * math.pi * self.frequency
        sine, cosine = np.sin(omega * times), np.cos(omega * times)
        over = times >= fallen
        displacement = np.where(over, 0.0, envelope * sine)
        velocity = np.where(over, 0.0, slope * sine + envelope * omega * cosine)
        acceleration = np.where(over, 0.0, 2.0 * slope * omega * cosine - envelope * omega**2 * sine)
        displacement[-1] = velocity[-1] = acceleration[-1] = 0.0
        flags = np.where(times > self.duration, FLAG_SOFT_START | FLAG_RESTING, FLAG_SOFT_START)
        return displacement, velocity, acceleration, [int(flag) for flag in flags]


SHARED = (
    "version",
    "name",
    "servo_rate",
    "substeps",
    "time_ratio",
    "soft_start",
    "duration",
    "seed",
    "bridge",
    "heartbeat",
)
"""Fields that :meth:`Scenario.shared_hash` always includes. The method adds other settings."""

LONGEST_FORCE_LEAD = 0.1

ALL_AXES = ("axes", "rig", "port", "setup")
"""Sections whose components use all axes. Components of other sections use only displacement axes."""

INDICES = ("none", "rths_benchmark_2020", "marths_2023")

LAST_SAMPLE = 2**32 - 1
"""Largest sample number that messages can store (32 bits)."""

_NAME = re.compile(r"\w[\w .-]*")
_LONGEST_NAME = 180
"""Largest length of a name, bytes. File names, limited to 255 bytes, also contain time, process and suffixes."""


@params
class Recording:
    note: str = text("remark of the operator about this run", "")
    client: str = text("client of the test, for the report", "")
    drawn: dict[str, object] = mapping(
        "random values that a study has drawn for this run: number of the plant, seed, and values by key"
    )


@params
class Case:
    set: dict[str, object] = mapping("changes to the scenario, as section.key: value")
    published: Data = mapping("published values of the indices, by the names that rths compare uses")
    note: str = text("purpose of the case", "")

    def validate(self, path: str) -> None:
        for name, value in self.published.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ConfigError(f"{path}.published.{name} = {show(value)}: must be a number")


@params
class Axis:
    actuator: OfParams | None = component(
        "actuator",
        "simulated actuator, for the simulator port and for rths stability; must be left out if rig is set",
        None,
    )
    specimen: OfParams | None = component(
        "specimen",
        "simulated specimen of this axis, for the simulator port and for rths stability; must be left out if "
        "rig is set",
        None,
    )
    sensors: Sensors = section(Sensors, "noise, resolution, range and delay of the measurement")
    output: Output = section(Output, "resolution and range of the command")
    limits: Limits = section(Limits, "limits of this axis; a rig file (--rig) replaces them")
    mode: str = text(
        "displacement: the axis follows the interface; force: the axis follows its own force target (load)",
        "displacement",
        AXIS_MODES,
    )
    load: Load | None = section(Load, "force target of an axis whose mode is force", None)
    force_control: ForceControl | None = section(
        ForceControl, "force controller; a rig file (--rig) replaces this section", None
    )
    rig_axis: RigAxis | None = section(RigAxis, "values of this axis from the rig file (--rig)", None)

    @property
    def own_load(self) -> Load | None:
        if self.load is None or self.rig_axis is None:
            return self.load
        return self.load.over(self.rig_axis.similitude.force)

    def validate(self, path: str) -> None:
        if self.rig_axis is not None:
            self.rig_axis.check_limits(self.limits, path, "rig_axis")
        check_mode(self, path)


@params
class Scenario:
    version: int = integer("version of this file format", at_least=1, at_most=1)
    name: str = text("name of the scenario")
    description: str = text("purpose of the test", "")
    servo_rate: float = number("samples per second of the rig", "Hz", more_than=0.0, at_most=100e3)
    substeps: int = integer("samples per integration step", at_least=1, at_most=100_000)
    duration: float = number(
        "duration of the test, rounded up to complete steps", "s", more_than=0.0, at_most=86_400.0
    )
    time_ratio: float = number(
        "time of the rig divided by time of the structure (1: real time); a multiple of 1 / substeps",
        default=1.0,
        at_least=1.0,
        at_most=1000.0,
    )
    soft_start: SoftStart | None = section(
        SoftStart, "prescribed motion before the test, for adaptive compensators; default: none", None
    )
    seed: int = integer("seed of all random generators", default=1, at_least=0)
    ground_motion: OfGroundMotionParams = component("ground_motion", "excitation", {"type": "none"})
    structure: OfStructureParams | None = component(
        "structure", "numerical substructure; not needed for the integrators prescribed and predefined", None
    )
    reduction: Any = component("reduction", "reduction of the structure to few shapes; default: none", None)
    integrator: OfIntegratorParams = component("integrator", "method that solves the equation of motion")
    ramp: OfParams = component("ramp", "interpolation of the targets at the servo rate", {"type": "linear"})
    interface: tuple[str, ...] = texts(
        "names of the degrees of freedom that the setup transforms to axes; default: all, if there are at most 64"
    )
    observed: tuple[str, ...] = texts(
        "names of degrees of freedom that a Target contains in addition to the interface, for the report"
    )
    setup: OfParams = component(
        "setup", "transformation between degrees of freedom and axes", {"type": "identity"}
    )
    compensator: OfCompensatorParams = component("compensator", "compensator for the delay of the actuators")
    rig_file: RigHead | None = section(RigHead, "general part of the rig file (--rig)", None)
    port: OfPortParams = component("port", "the rig's port", {"type": "simulator"})
    hops: HopsParams = section(HopsParams, "message delay between the rig and the computer that sends Commands")
    axes: dict[str, Axis] = sections(Axis, "actuator axes by name")
    rig: Any = component(
        "rig", "coupled actuators with a common specimen; must be left out if each axis has its own specimen", None
    )
    semi_active: OfSemiActiveParams | None = component(
        "semi_active", "controller of the auxiliary inputs of the rig", None
    )
    updating: Updating | None = section(Updating, "learning copies of the specimen; default: none", None)
    bridge: BridgeParams = section(BridgeParams, "bounds of bridging, for a rig that cannot wait")
    levels: WholeLevels = section(WholeLevels, "levels of the complete rig; each level can warn, hold or stop")
    heartbeat: HeartbeatParams = section(
        HeartbeatParams, "heartbeats of monitor and recorder, and reaction of the rig if they are missing"
    )
    force_lead: float | None = number(
        "delay of the measured forces that is compensated before the integrator uses the forces; default: none. "
        "Half a step is added for an integrator that holds the forces, and one step for newmark",
        "s",
        None,
        at_least=0.0,
        at_most=LONGEST_FORCE_LEAD,
    )
    indices: str = text("published indices for comparison in the report", "none", INDICES)
    monitor: MonitorParams = section(MonitorParams, "limits on the indices of the test")
    engine: str = text(f"{ENGINE} --engine", AUTO, (AUTO, EXECUTIVE))
    recording: Recording = section(Recording, "content of the recording in addition to the messages")
    cases: dict[str, Case] = sections(Case, "named variants", optional=True)
    scatter: dict[str, object] = mapping(
        "variation of the plants of an ensemble, for studies, as section.key: {distribution: numbers}"
    )

    def validate(self, path: str) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"name = {show(self.name)}: must consist of letters, digits, spaces and _ . -")
        if (length := len(self.name.encode())) > _LONGEST_NAME:
            raise ConfigError(f"name = {show(self.name)}: has {length} bytes, but must have <= {_LONGEST_NAME}")
        if abs(self.substeps * self.time_ratio - self.samples_per_step) > ROUNDING * self.samples_per_step:
            raise ConfigError(
                f"time_ratio = {self.time_ratio:g}: multiplied by substeps = {self.substeps}, it must be a whole "
                "number"
            )
        if self.samples > LAST_SAMPLE:
            raise ConfigError(f"duration * servo_rate = {self.samples} samples: must be <= {LAST_SAMPLE}")
        check_engine(self.engine, self.port)
        self._validate_rig()
        self._validate_similitude()
        wait, bridge = self.port.longest_wait, self.bridge
        if bridge.pauses and bridge.max_pause > wait:
            raise ConfigError(
                f"bridge.max_pause = {bridge.max_pause:g} s: must be <= port.longest_wait = {wait:g} s"
            )
        self.hops.check(self.port.transport_samples, self.force_axes)
        check_force_axes(self)
        check_updating(self)
        # an integrator without a structure may observe degrees of freedom in addition to the axes
        axes = self.moved_axes if self.integrator.observes and self.structure is None else ()
        check_names(self.interface or axes, self.observed)
        check_scatter(self.scatter, "scatter")
        for part_path, part in walk(self):
            for name, span in part.spans().items():
                if span > self.duration * self.time_ratio:
                    raise ConfigError(
                        f"{join(part_path, name)} = {span:g} s: must be <= duration = "
                        f"{self.duration * self.time_ratio:g} s"
                    )

    def _validate_rig(self) -> None:
        for name, axis in self.axes.items():
            for noun in ("actuator", "specimen"):
                present = getattr(axis, noun) is not None
                if present and self.rig is not None:
                    raise ConfigError(f"axes.{name}.{noun}: must be left out, because rig defines it for all axes")
                if not present and self.rig is None and self.port.builds_axes:
                    raise _missing(name, noun, "or set rig for all axes")
        for key in ("transport_samples", "longest_wait"):
            if not hasattr(self.port, key) and not self.port.cannot_be_built:
                raise ConfigError(
                    f"port.type = {type(self.port).type_name!r}: the Params of a port must have {key}"
                )

    def _validate_similitude(self) -> None:
        for noun in ("rig", "semi_active"):
            passes = noun == "rig" and self.rig is not None and self.rig.to_scale
            if getattr(self, noun) is not None and self.scaled and not passes:
                raise ConfigError(
                    f"{noun}: cannot be used with a scale model (similitude), because its numbers are not scaled. "
                    "Use axes with their own specimens"
                )
        if (self.rig_file is None) != all(axis.rig_axis is None for axis in self.axes.values()):
            raise ConfigError(
                "rig_file: must be set by a rig file (--rig), together with the rig_axis of each axis"
            )
        with_axis = [name for name, axis in self.axes.items() if axis.rig_axis]
        if with_axis and len(with_axis) < len(self.axes):
            without = ", ".join(name for name in self.axes if name not in with_axis)
            raise ConfigError(
                f"axes: rig_axis is missing for {without}, but is set for {', '.join(with_axis)}. Set rig_axis "
                "for all axes or for none"
            )
        for name, axis in self.axes.items():
            if self.rig_file is not None and axis.rig_axis is not None:
                path = f"axes.{name}.rig_axis"
                axis.rig_axis.check_corrections(self.rig_file.auxiliary, self.servo_rate, path)

    def model_of(self, axis: str, noun: str) -> OfParams:
        section: OfParams | None = getattr(self.axes[axis], noun)
        if section is None:
            raise _missing(axis, noun, "required by the simulation")
        return section

    def check_fit(self, section: str, parts: Iterable[tuple[str, ChecksScenario, TestContext]] = ()) -> None:
        """Raise ConfigError if a component of ``section`` in ``parts`` (default: all parts) refuses this test."""
        problems = Problems()
        for path, part, context in parts or self.parts():
            if path == section or path.startswith(f"{section}."):
                try:
                    part.fits(context)
                except ConfigError as error:
                    problems += (join(path, problem) for problem in error.problems)
        problems.refuse()

    def parts(self) -> Iterator[tuple[str, ChecksScenario, TestContext]]:
        context = self.context()
        moved = context.of_first(len(self.moved_axes))
        for path, part, declared in walk_declared(self):
            if part is not self:
                behind = any(spec.after for spec in declared)
                axis = path.split(".")[1] if path.startswith("axes.") else ""
                test = context if path.partition(".")[0] in ALL_AXES else moved
                yield path, part, replace(test, behind=behind, axis=axis)

    def context(self) -> TestContext:
        return TestContext(
            axes=tuple(self.axes),
            velocity_limits=tuple(axis.limits.velocity for axis in self.axes.values()),
            displacement_noise_rms=tuple(axis.sensors.displacement_noise_rms for axis in self.axes.values()),
            servo_rate=self.servo_rate,
            dt=self.dt,
            step=self.step,
            substeps=self.substeps,
            samples_per_step=self.samples_per_step,
            duration=self.duration,
            ramp=type(self.ramp).type_name,
            has_structure=self.structure is not None,
            has_soft_start=self.soft_start is not None,
            has_ground_motion=type(self.ground_motion).type_name != "none",
            has_gravity=self.structure is not None and self.structure.gravity_loads is not None,
            gravity_of_rig=None if self.structure is None else self.structure.experimental_gravity_loads,
            observed=self.observed,
            transport=self.transport_samples * self.dt,
            force_axes=self.force_axes,
            strokes=tuple(axis.limits.stroke for axis in self.axes.values()),
            force_lead=self.force_lead,
            to_axes=partial(_to_axes, self),
        )

    @property
    def force_axes(self) -> tuple[str, ...]:
        return tuple(name for name, axis in self.axes.items() if axis.mode == FORCE)

    @property
    def moved_axes(self) -> tuple[str, ...]:
        return tuple(name for name, axis in self.axes.items() if axis.mode != FORCE)

    @property
    def scaled(self) -> bool:
        return any(scale.length != 1.0 or scale.force != 1.0 for scale in self.similitude)

    @property
    def similitude(self) -> list[Similitude]:
        return [axis.rig_axis.similitude if axis.rig_axis else Similitude() for axis in self.axes.values()]

    @property
    def energy_scale(self) -> Array | None:
        """Ratio of structure energy to specimen energy, ``(n_moved,)``, or None without scale models."""
        scales = self.similitude[: len(self.moved_axes)]
        return np.array([scale.length * scale.force for scale in scales]) if self.scaled else None

    @property
    def stop_groups(self) -> tuple[int, ...]:
        """Group number of each axis, in order. Axes of one group move one specimen and stop together."""
        n_axes, n_moved = len(self.axes), len(self.moved_axes)
        groups = (0,) * n_axes if self.rig is not None else self.setup.stop_groups(n_moved, n_axes)
        numbers: dict[int, int] = {}
        return tuple(numbers.setdefault(group, len(numbers)) for group in groups)

    @property
    def dt(self) -> float:
        """Servo period, s."""
        return 1.0 / self.servo_rate

    @property
    def step(self) -> float:
        """Integration step in structure time, s."""
        return self.substeps / self.servo_rate

    @property
    def samples_per_step(self) -> int:
        """Number of servo samples per integration step: ``substeps`` times ``time_ratio``."""
        return round(self.substeps * self.time_ratio)

    @property
    def soft_start_steps(self) -> int:
        return self.soft_start.steps(self.samples_per_step * self.dt) if self.soft_start else 0

    @property
    def transport_samples(self) -> int:
        """Number of samples until a Command takes effect: hops before the port, and delay after it."""
        return self.hops.depth + self.port.transport_samples

    @property
    def steps(self) -> int:
        """Number of integration steps, including the soft start."""
        return self.soft_start_steps + max(1, math.ceil(self.duration / self.step - ROUNDING))

    @property
    def samples(self) -> int:
        return self.steps * self.samples_per_step

    @property
    def limits(self) -> dict[str, Limits]:
        return {name: axis.limits for name, axis in self.axes.items()}

    def data(self) -> Data:
        return dict(to_data(self))

    def shared_hash(self, run_id: str = "") -> str:
        """Return the hash of the run id and of all settings that nodes must share."""
        data = self.data()
        shared: dict[str, object] = {key: data[key] for key in SHARED}
        shared |= {"port": data["port"], "run": run_id}
        if self.hops.depth:
            shared |= {"hops": data["hops"]}
        if self.updating is not None:
            shared |= {"updating": data["updating"]}
        if self.interface or self.observed:
            shared |= {"interface": data["interface"], "observed": data["observed"]}
        shared["axes"] = [[name, axis["limits"]] for name, axis in data["axes"].items()]
        if self.engine != AUTO:
            shared |= {"engine": self.engine}
        if self.rig_file is not None:
            shared |= {"rig": data["rig_file"], "rig_axes": [axis["rig_axis"] for axis in data["axes"].values()]}
        return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:16]

    def whole_hash(self, run: str = "") -> str:
        """Return the hash of the complete scenario, with file contents, and of ``run`` (run id or program)."""
        data = self.data()
        inputs.replace_files(Scenario, data, inputs.Named.hash)
        everything = [inputs.contained(data), run]
        return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()[:16]

    def run_id(self) -> str:
        return f"{self.name}_{time.strftime('%Y%m%d_%H%M%S')}_{os.getpid()}"


def _missing(axis: str, noun: str, meaning: str) -> ConfigError:
    types = ", ".join(registry.names(noun))
    return ConfigError(f"axes.{axis}.{noun}: missing ({meaning}); known: {types}")


def _to_axes(scenario: Scenario, displacement: Array, velocity: Array) -> tuple[Array, Array]:
    n = len(scenario.moved_axes)
    lengths = [scale.length for scale in scenario.similitude[:n]]
    if type(scenario.setup).type_name == "identity":
        return displacement / lengths, velocity / lengths
    try:
        setup: Setup = registry.build("setup", scenario.setup, n, n)
    except ConfigError:  # the error is reported when the setup is built for the test
        return np.zeros_like(displacement), np.zeros_like(velocity)
    still = [0.0] * n
    rows = zip(displacement.tolist(), velocity.tolist(), strict=True)
    moved = np.array([setup.moved((x, v, still))[:2] for x, v in rows])
    return moved[:, 0] / lengths, moved[:, 1] / lengths


SIMULATED, EMULATED = "simulated", "emulated"
REAL_RIG = "REAL RIG"


def axis_names(scenario: Scenario) -> dict[str, str]:
    """Return the display names of the axes, e.g. ``north (story_1)`` if the rig file has another name."""
    called = {name: axis.rig_axis.name if axis.rig_axis else name for name, axis in scenario.axes.items()}
    return {name: name if title in ("", name) else f"{title} ({name})" for name, title in called.items()}


def simulation(scenario: Scenario | RigFile) -> str:
    """Return ``simulated``, ``emulated`` (a program replaces the rig), or an empty string (real rig)."""
    port = scenario.port
    if port.builds_axes:
        return SIMULATED
    return EMULATED if port.emulator or port.stand_in else ""


def rig_kind(scenario: Scenario | RigFile) -> str:
    return label(simulation(scenario))


def label(simulation: str) -> str:
    return simulation.upper() or REAL_RIG
