"""The scenario: one section per noun, checked."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
from typing import Any

import attrs
import numpy as np

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, join, show
from rths_nodes.core.params import component, integer, mapping, number, params, section, sections, text
from rths_nodes.core.samples import Array
from rths_nodes.core.strict import as_data, walk
from rths_nodes.core.wire.codec import Codec
from rths_nodes.laboratory.sensors import Sensors
from rths_nodes.loop.supervision.bridges import BridgeParams
from rths_nodes.loop.supervision.heartbeat import HeartbeatParams
from rths_nodes.loop.supervision.limits import Limits
from rths_nodes.loop.supervision.monitor import MonitorParams
from rths_nodes.numerical.soft_start import SoftStart

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
"""Fields that two or more nodes share, beside the axes' names and limits and the port: the hash covers them."""

LAST_SAMPLE = 2**32 - 1
"""The messages number samples with 32 bits."""

_NAME = re.compile(r"\w[\w .-]*")


@params
class Axis:
    """One actuator axis of the rig."""

    actuator: Any = component("actuator", "simulated actuator; left out where a rig has them all", None)
    specimen: Any = component(
        "specimen", "experimental substructure on this axis; left out where a rig has one for all axes", None
    )
    sensors: Sensors = section(Sensors, "noise, resolution and range of the measurement")
    limits: Limits = section(Limits, "limits of this axis")


@params
class Recording:
    """What goes into the recording beside the messages."""

    note: str = text("words of the operator about this run", "")


@params
class Case:
    """A named variant of a scenario, with the numbers that were published of it."""

    set: dict[str, Any] = mapping("what differs from the scenario: section.key: value")
    published: dict[str, Any] = mapping("published indices by the names of rths compare")
    note: str = text("what the case shows", "")

    def validate(self, path: str) -> None:
        """Refuses published values that are no numbers."""
        for name, value in self.published.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ConfigError(f"{path}.published.{name} = {show(value)}: must be a number")


@params
class Scenario:
    """A whole test."""

    version: int = integer("version of this file format", at_least=1, at_most=1)
    name: str = text("name of the scenario")
    description: str = text("what it shows", "")
    servo_rate: float = number("samples per second of the rig", "Hz", more_than=0.0, at_most=100e3)
    substeps: int = integer("samples per integration step", at_least=1, at_most=100_000)
    duration: float = number("of the test, rounded up to whole steps", "s", more_than=0.0, at_most=86_400.0)
    time_ratio: int = integer(
        "ratio of the time axis: the rig moves so many times slower than the structure; 1 is real time",
        default=1,
        at_least=1,
        at_most=1000,
    )
    soft_start: SoftStart | None = section(
        SoftStart, "prescribed motion before the test, for adaptive compensators; none if left out", None
    )
    seed: int = integer("of all random numbers", default=1, at_least=0)
    ground_motion: Any = component("ground_motion", "excitation", {"type": "none"})
    structure: Any = component("structure", "numerical substructure; none for the integrator prescribed", None)
    integrator: Any = component("integrator", "solves the equation of motion")
    ramp: Any = component("ramp", "interpolates targets at the servo rate", {"type": "linear"})
    setup: Any = component("setup", "degrees of freedom <-> axes", {"type": "identity"})
    compensator: Any = component("compensator", "makes up for the actuators' delay")
    port: Any = component("port", "the rig's port", {"type": "simulator"})
    axes: dict[str, Axis] = sections(Axis, "actuator axes by name")
    rig: Any = component(
        "rig", "coupled actuators with their one specimen; left out where each axis has its own", None
    )
    semi_active: Any = component("semi_active", "controller of the auxiliary inputs of the rig", None)
    bridge: BridgeParams = section(BridgeParams, "what is bridged where a rig cannot wait")
    heartbeat: HeartbeatParams = section(HeartbeatParams, "signs of life that the rig needs to go on")
    monitor: MonitorParams = section(MonitorParams, "limits on the indices")
    recording: Recording = section(Recording, "what goes into the recording beside the messages")
    cases: dict[str, Case] = sections(Case, "named variants", optional=True)

    def validate(self, path: str) -> None:
        """Refuses a name that no file may have, too many samples, and a memory longer than the test."""
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"name = {show(self.name)}: must be letters, digits and ' _ . -', to name files")
        if self.samples > LAST_SAMPLE:
            raise ConfigError(f"duration * servo_rate = {self.samples} samples: must be <= {LAST_SAMPLE}")
        self._validate_rig()
        for place, part in walk(self):
            for name, span in getattr(part, "spans", dict)().items():
                if span > self.duration * self.time_ratio:
                    raise ConfigError(
                        f"{join(place, name)} = {span:g} s: must be <= duration = "
                        f"{self.duration * self.time_ratio:g} s"
                    )

    def _validate_rig(self) -> None:
        """Either every axis has an actuator and a specimen, or the rig has them for all."""
        for name, axis in self.axes.items():
            for noun in ("actuator", "specimen"):
                given = getattr(axis, noun) is not None
                if given and self.rig is not None:
                    raise ConfigError(f"axes.{name}.{noun}: must be left out, the rig has it for all axes")
                if not given and self.rig is None:
                    known = ", ".join(registry.names(noun))
                    raise ConfigError(f"axes.{name}.{noun}: missing (or give rig for all axes); known: {known}")

    def cautions(self) -> list[str]:
        """What is allowed but dangerous or doubtful, in words; each component knows its own."""
        parts = [(place, part) for place, part in walk(self) if hasattr(part, "cautions")]
        return [f"{place}: {words}" for place, part in parts if part is not self for words in part.cautions(self)]

    @property
    def dt(self) -> float:
        """Servo period, s."""
        return 1.0 / self.servo_rate

    @property
    def step(self) -> float:
        """Integration step, s, in the time of the structure."""
        return self.substeps / self.servo_rate

    @property
    def samples_per_step(self) -> int:
        """Servo samples n of one integration step; more than ``substeps`` on a slower time axis."""
        return self.substeps * self.time_ratio

    @property
    def soft_start_steps(self) -> int:
        """Steps of the soft start before the test; 0 without one."""
        return self.soft_start.steps(self.samples_per_step * self.dt) if self.soft_start else 0

    @property
    def steps(self) -> int:
        """Whole integration steps I, those of the soft start included."""
        return self.soft_start_steps + max(1, math.ceil(self.duration / self.step - 1e-9))

    @property
    def samples(self) -> int:
        """Servo samples K = I n."""
        return self.steps * self.samples_per_step

    @property
    def limits(self) -> dict[str, Limits]:
        """Limits by axis."""
        return {name: axis.limits for name, axis in self.axes.items()}

    def data(self) -> dict[str, Any]:
        """Plain data, complete with defaults: what is recorded and handed to the nodes."""
        complete: dict[str, Any] = as_data(self)
        return complete

    def shared_hash(self, run_id: str = "") -> str:
        """Hash of what two or more nodes must agree on, and of the run."""
        data = self.data()
        shared: dict[str, Any] = {key: data[key] for key in SHARED}
        shared |= {"port": data["port"], "run": run_id}
        shared["axes"] = [[name, axis["limits"]] for name, axis in data["axes"].items()]
        return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:16]

    def build_structure(self) -> Any:
        """The numerical substructure; None for a test without one."""
        if self.structure is None:
            return None
        return registry.class_of("structure", self.structure)(self.structure)

    def reference_energy(self, structure: Any) -> float:
        """What the running energy monitor adds to the input energy, J."""
        given = self.monitor.reference_energy
        if given is not None:
            return given
        return 0.0 if structure is None else float(structure.elastic_energy)

    def dof_names(self) -> tuple[str, ...]:
        """Names of the degrees of freedom; those of the axes where there is no structure."""
        if self.structure is None:
            return tuple(self.axes)
        names: tuple[str, ...] = self.build_structure().names
        return names

    def run_id(self) -> str:
        """What tells the next run from others: name, local time, process."""
        return f"{self.name}_{time.strftime('%Y%m%d_%H%M%S')}_{os.getpid()}"

    def state_names(self) -> tuple[str, ...]:
        """Names of the compensator's inner numbers, with the names of the axes: ``axes.story_1.alpha``."""
        axes = tuple(self.axes)
        names = self.build_compensator().state_names
        pairs = [name.rstrip("]").partition("[") for name in names]
        return tuple(f"axes.{axes[int(index)]}.{name}" if index else name for name, _, index in pairs)

    def auxiliary_names(self) -> tuple[str, ...]:
        """Names of the measured auxiliary channels."""
        names: tuple[str, ...] = self.build_port().auxiliary_names
        return names

    def codec(self) -> Codec:
        """Packs and unpacks the messages of this rig. Raises ConfigError when it does not fit into them."""
        port = self.build_port()
        return Codec(
            len(self.dof_names()),
            len(self.axes),
            len(self.state_names()),
            len(port.auxiliary_names),
            len(port.auxiliary_inputs),
        )

    def test_constants(self) -> dict[str, Any]:
        """The fields of TestState that do not change during a test."""
        return {
            "scenario": self.name,
            "servo_rate": self.servo_rate,
            "substeps": self.samples_per_step,
            "samples": self.samples,
            "transport_samples": self.port.transport_samples,
            "axis_names": list(self.axes),
            "degree_of_freedom_names": list(self.dof_names()),
            "auxiliary_names": list(self.auxiliary_names()),
        }

    def build_compensator(self) -> Any:
        """The compensator for all axes; to a ``lead`` the port's transport is added."""
        params = self.compensator
        if hasattr(params, "fits"):
            params.fits(self)
        if hasattr(params, "lead"):
            params = attrs.evolve(params, lead=params.lead + self.port.transport_samples * self.dt)
        return registry.class_of("compensator", params)(params, self.dt, len(self.axes))

    def external_force(self, structure: Any) -> Array:
        """-M 1 a_g at every step of the test ``(steps + 1, n_dof)`` N, M of the whole; zero without structure."""
        acceleration = self.ground_acceleration()
        if structure is None:
            return np.zeros((len(acceleration), len(self.axes)))
        return np.outer(-acceleration, (structure.mass + structure.experimental_mass) @ structure.influence)

    def ground_acceleration(self) -> Array:
        """Acceleration of the ground at every step of the test, without the soft start: ``(steps + 1,)`` m/s^2."""
        times = self.step * np.arange(self.steps - self.soft_start_steps + 1)
        motion = registry.class_of("ground_motion", self.ground_motion)(self.ground_motion, self.seed)
        acceleration: Array = motion.sample(times)
        return acceleration

    def build_port(self) -> Any:
        """The port to the rig."""
        if hasattr(self.port, "fits"):
            self.port.fits(self)
        rig = None
        if self.rig is not None:
            rig = registry.class_of("rig", self.rig)(self.rig, self.dt, len(self.axes))
        return registry.class_of("port", self.port)(self.port, self.axes, self.dt, self.seed, rig)

    def build_semi_active(self, structure: Any) -> Any:
        """The controller of the rig's auxiliary inputs; None for none. Raises ConfigError when it does not fit."""
        if self.semi_active is None:
            return None
        port = self.build_port()
        cls = registry.class_of("semi_active", self.semi_active)
        if cls.inputs != port.auxiliary_inputs:
            has = ", ".join(port.auxiliary_inputs) or "none"
            raise ConfigError(f"semi_active: controls {', '.join(cls.inputs)}; auxiliary inputs of the rig: {has}")
        return cls(self.semi_active, structure, self.step, port.auxiliary_names)
