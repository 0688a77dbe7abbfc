# SPDX-License-Identifier: Apache-2.0
"""Rig file: the rig on which a scenario is tested.

A rig file contains the port and, for each axis, channels, limits and specimen scale. :func:`on_rig` applies
these values to a scenario.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems, show, unknown
from rths_nodes.core.expressions import renamed
from rths_nodes.core.limits import Disagreement, Limits, WholeLevels
from rths_nodes.core.parameters import (
    OfParams,
    OfPortParams,
    component,
    declared,
    evolved,
    flag,
    integer,
    number,
    params,
    section,
    sections,
    text,
    texts,
)
from rths_nodes.core.validation import from_data, is_section, opened, to_data
from rths_nodes.laboratory.calibration import Channel, OnRig, RigAxis
from rths_nodes.laboratory.force_control import ForceControl
from rths_nodes.loop.options import AUTO, EXECUTIVE
from rths_nodes.loop.scenario.force_axes import DISPLACEMENT, OF_FORCE
from rths_nodes.loop.supervision.bridges import BridgeParams
from rths_nodes.loop.supervision.levels import OF_AXES
from rths_nodes.loop.supervision.monitor import OF_CORRIDOR, MonitorParams
from rths_nodes.loop.watch import WatchSection

REMOVED = {
    "roles": "this key was removed, together with passphrases and consents. Use two_persons: true",
    "unattended": (
        "this key was removed, because a person clears each motion on a real rig, at the terminal or on the "
        "page. Delete the key"
    ),
}
ENGINE = "executive: a native process, only for simulated and emulated rigs; auto: the engine chosen by"


@params
class RigFileAxis(OnRig):
    serves: tuple[str, ...] = texts("alternative names of this axis in scenarios")
    actuator: OfParams | None = component(
        "actuator", "model of this actuator, for simulation; default: the model in the scenario", None
    )
    limits: Limits = section(Limits, "limits of this axis, in SI units")
    force_control: ForceControl | None = section(
        ForceControl,
        "force controller of this axis; without this section, scenarios cannot control the force",
        None,
    )

    def axis(self, name: str, index: int) -> RigAxis:
        shared = {key: getattr(self, key) for key in declared(OnRig)}
        return RigAxis(name=name, number=index, limits=self.limits, **shared)

    def validate(self, path: str) -> None:
        self.axis(path.rpartition(".")[2], 0).check_limits(self.limits, path)


@params
class WarningOutput:
    output: str = text("name of the output, as displayed on the terminal and the page")
    seconds: float = number(
        "time before each motion during which the output is on and the rig is held",
        "s",
        3.0,
        at_least=3.0,
        at_most=30.0,
    )

    def validate(self, path: str) -> None:
        if not self.output.strip():
            raise ConfigError(f"{path}.output = {show(self.output)}: must be a name, such as horn")


@params
class RigHead:
    """General part of a rig file, as stored in a scenario."""

    name: str = text("name of the rig")
    description: str = text("location and description", "")
    laboratory: str = text("name and address of the laboratory, for the report", "")
    controller: str = text("servo-controller of the rig: maker, type, serial number, firmware", "")
    two_persons: bool = flag(
        "true: rung g requires the names of the operator and of a second person. The names are recorded like "
        "checklist answers and do not control access",
        False,
    )
    checklist: tuple[str, ...] = texts(
        "statements that the operator confirms by name before the first motion; an unconfirmed statement prevents "
        "motion"
    )
    warning: WarningOutput | None = section(
        WarningOutput,
        "digital output for a horn or a lamp, switched on before each motion; default: none",
        None,
    )
    servo_rate: float | None = number(
        "sampling rate of the controller; a scenario with a different rate is refused; default: any rate",
        "Hz",
        None,
        more_than=0.0,
        at_most=100e3,
    )
    auxiliary: dict[str, Channel] = sections(Channel, "additional channels, by name at the port", optional=True)


@params
class RigFile(RigHead):
    version: int = integer("version of this file format", at_least=1, at_most=1)
    engine: str = text(f"{ENGINE} the scenario", AUTO, (AUTO, EXECUTIVE))
    port: OfPortParams = component("port", "connection to the rig")
    axes: dict[str, RigFileAxis] = sections(RigFileAxis, "actuator axes by name, in the order of the port")
    bridge: BridgeParams | None = section(
        BridgeParams, "bounds of bridging; default: the bounds in the scenario", None
    )
    levels: WholeLevels | None = section(
        WholeLevels, "levels of the complete rig; default: the levels in the scenario", None
    )
    monitor: MonitorParams | None = section(
        MonitorParams, "limits on the indices; missing limits come from the scenario", None
    )
    watch: WatchSection | None = section(
        WatchSection, "watcher on another computer, for rths watch; default: none", None
    )

    def validate(self, path: str) -> None:
        check_engine(self.engine, self.port)
        for axis, entry in self.axes.items():
            entry.check_corrections(self.auxiliary, self.servo_rate, f"axes.{axis}")
        owner: dict[str, str] = {}
        for axis, entry in self.axes.items():
            for name in (axis, *entry.serves):
                if entry.serves.count(name) > 1:
                    raise ConfigError(
                        f"axes.{axis}.serves: {show(name)} is listed more than once. List each name once"
                    )
                if owner.setdefault(name, axis) != axis:
                    raise ConfigError(
                        f"axes: {owner[name]} and {axis} both have the name {show(name)}. Use each name for only "
                        "one axis"
                    )
        if self.watch is not None:
            self._check_watch(self.watch)

    def _check_watch(self, watch: WatchSection) -> None:
        if list(watch.axes) != list(self.axes):
            raise ConfigError(
                f"watch.axes = {', '.join(watch.axes)}: must be all axes of the rig, in the order "
                f"{', '.join(self.axes)}"
            )
        if self.servo_rate is None:
            raise ConfigError(
                "servo_rate: missing; the watcher needs this rate to compare the counter of the rig with its own "
                "clock"
            )
        for name, axis in watch.axes.items():
            mine, limits = axis.limits, self.axes[name].limits
            for key, value, least, unit, noun in (
                ("displacement", mine.displacement, limits.stroke, "m", "stroke"),
                ("velocity", mine.velocity, limits.velocity, "m/s", "limit"),
                ("force", mine.force, limits.force, "N", "limit"),
            ):
                if value < least:
                    raise ConfigError(
                        f"watch.axes.{name}.limits.{key} = {value:g} {unit}: must be >= {least:g} {unit}, the "
                        f"{noun} of the axis, so that the test stops before the pulse ends"
                    )

    def axis_of(self, names: Iterable[str]) -> dict[str, str]:
        """Return the rig's axis for each of ``names``. Raises ConfigError unless the axes match one to one."""
        wanted, problems = list(names), Problems()
        served = {name: axis for axis, entry in self.axes.items() for name in (axis, *entry.serves)}
        users: dict[str, str] = {}
        for name in wanted:
            if name not in served:
                serves = {axis: ", ".join(entry.serves) for axis, entry in self.axes.items()}
                choices = "; ".join(f"{axis} (serves {more})" if more else axis for axis, more in serves.items())
                problems.append(
                    f"axes.{name}: no axis of the rig {self.name} has this name or lists it in serves. The axes "
                    f"of the rig are {choices}"
                )
            elif (user := users.setdefault(served[name], name)) != name:
                problems.append(
                    f"axes.{name}: belongs to the axis {served[name]} of the rig {self.name}, but {user} already "
                    "uses this axis"
                )
        if idle := [axis for axis in self.axes if axis not in users]:
            problems.append(
                f"axes: the scenario does not use {', '.join(idle)} of the rig {self.name}. The axes of the "
                f"scenario are {', '.join(wanted)}"
            )
        problems.refuse()
        return {name: axis for axis, name in users.items()}


def check_engine(engine: str, port: OfPortParams) -> None:
    if engine == EXECUTIVE and not (port.builds_axes or port.emulator or port.stand_in):
        raise ConfigError(
            f"engine = {engine!r}: port.type = {type(port).type_name!r} drives a real rig, but this engine is "
            "refused for real rigs until the evidence listed in doc/real_time.md exists. Use auto"
        )


def on_rig(data: Mapping[str, object], rig: RigFile) -> dict[str, object]:
    """Return the scenario ``data`` with the values of ``rig``. Raises ConfigError if axes or servo rate differ."""
    axes, rate = data.get("axes"), data.get("servo_rate")
    if not isinstance(axes, Mapping):
        return dict(data)
    if rig.servo_rate is not None and isinstance(rate, (int, float)) and rate != rig.servo_rate:
        raise ConfigError(
            f"servo_rate = {show(rate)} Hz: must be {rig.servo_rate:g} Hz, the rate of the controller of the rig "
            f"{rig.name}"
        )
    chosen = rig.axis_of(axes)
    merged = dict(data) | {
        "port": rig.port,
        "rig_file": RigHead(**{key: getattr(rig, key) for key in declared(RigHead)}),
        "axes": {name: _on_axis(entry, rig, chosen[name]) for name, entry in axes.items()},
    }
    if rig.engine != AUTO:
        merged["engine"] = rig.engine
    if rig.bridge is not None:
        merged["bridge"] = rig.bridge
    if rig.levels is not None:
        merged["levels"] = _levels(rig, rig.levels, chosen)
    if rig.monitor is not None:
        usual, paired = MonitorParams(), OF_CORRIDOR if rig.monitor.corridor is not None else ()
        stated = {
            key: value
            for key, value in opened(rig.monitor).items()
            if key in paired or value != getattr(usual, key)
        }
        merged["monitor"] = _added(merged.get("monitor"), stated)
    return merged


def _levels(rig: RigFile, levels: WholeLevels, chosen: Mapping[str, str]) -> WholeLevels:
    names = {name: mine for mine, axis in chosen.items() for name in (axis, *rig.axes[axis].serves)}
    return evolved(
        levels,
        expressions={
            name: evolved(level, of=renamed(level.of, names, OF_AXES))
            for name, level in levels.expressions.items()
        },
        quantities={
            name: evolved(quantity, of=tuple(renamed(part, names, OF_AXES) for part in quantity.of))
            for name, quantity in levels.quantities.items()
        },
    )


NEVER_WIDER = ("stroke", "velocity", "force", "deceleration", "tracking_error", "force_rate", "force_error")


def refuse_wider(data: Data, changed: Data, moved: Collection[str]) -> None:
    """Raise ConfigError if ``changed`` widens a limit of ``data`` or alters another value of the rig file."""
    if data.get("rig_file") is None:
        return
    rig = opened(data["rig_file"])["name"]
    problems, specs = Problems(), declared(Limits)
    copies: dict[str, tuple[type, object, object]] = {"rig_file": (RigHead, data["rig_file"], changed["rig_file"])}
    for name, axis in changed["axes"].items():
        if name not in data["axes"]:
            raise unknown("axes", f"axis on the rig {rig}", name, data["axes"])
        entry = opened(data["axes"][name])
        copies[f"axes.{name}.rig_axis"] = RigAxis, entry.get("rig_axis"), axis.rig_axis
        # a displacement axis lacks the force limits of the rig file, so take the limits of the file
        stated = opened(entry.get("rig_axis")).get("limits") or entry["limits"]
        stated = stated if isinstance(stated, Limits) else from_data(Limits, stated, f"axes.{name}.limits")
        bounds = [
            (f"limits.{key}", specs[key].unit, getattr(stated, key), getattr(axis.limits, key))
            for key in NEVER_WIDER
            if not (key in OF_FORCE and name in moved)  # force limits apply only to force axes
        ]
        if axis.force_control is not None and (loop := entry.get("force_control")) is not None:
            loop = loop if isinstance(loop, ForceControl) else from_data(ForceControl, loop, f"axes.{name}")
            corrections = loop.largest_correction, axis.force_control.largest_correction
            bounds.append(("force_control.largest_correction", "m", *corrections))
        for key, unit, before, now in bounds:
            if before is not None and (now is None or now > before):
                asked = "left out" if now is None else show(now, unit)
                problems.append(
                    f"axes.{name}.{key} = {asked}: must be <= {show(before, unit)}, the limit of the rig {rig}. A "
                    "test can only narrow the limits of its rig"
                )
    for key, (cls, before, now) in copies.items():
        before = from_data(cls, before, key) if isinstance(before, Mapping) else before
        if to_data(now) != to_data(before):
            problems.append(f"{key}: must not be changed in a scenario. Edit the rig file, which all tests share")
    problems.refuse()


def _added(before: object, values: Mapping[str, object]) -> object:
    return opened(before) | dict(values) if is_section(before) else before


def _on_axis(entry: object, rig: RigFile, name: str) -> object:
    if not is_section(entry):
        return entry
    merged, axis = opened(entry), rig.axes[name]
    if merged.get("mode", DISPLACEMENT) == DISPLACEMENT:  # omit force limits, even if the axis has both modes
        merged["limits"] = evolved(axis.limits, **dict.fromkeys(OF_FORCE))
    else:
        merged["limits"] = axis.limits
        merged["force_control"] = axis.force_control
    merged["rig_axis"] = axis.axis(name, list(rig.axes).index(name))
    if axis.actuator is not None:
        merged["actuator"] = axis.actuator
    channels = {"displacement": axis.displacement, "force": axis.force}
    stated = {
        f"{noun}_{key}": value
        for noun, channel in channels.items()
        for key, value in _in_si(channel, "range", "resolution", "noise_rms").items()
    }
    merged["sensors"] = sensors = _added(merged.get("sensors"), stated)
    levels = axis.limits.levels.in_effect() if axis.limits.levels is not None else {}
    level = levels.get("displacement_disagreement")
    if isinstance(level, Disagreement) and level.channel in rig.auxiliary and is_section(sensors):
        second = {"channel": level.channel} | _in_si(rig.auxiliary[level.channel], "noise_rms")
        merged["sensors"] = opened(sensors) | {"second": _added(opened(sensors).get("second") or {}, second)}
    merged["output"] = _added(merged.get("output"), _in_si(axis.command, "range", "resolution"))
    return merged


def _in_si(channel: Channel, *names: str) -> dict[str, float]:
    values = {name: getattr(channel, name) * channel.unit_si for name in names}
    return {name: value for name, value in values.items() if value}
