# SPDX-License-Identifier: Apache-2.0
"""Tests of the contracts that every registered component keeps: behaviour, parameters, documentation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import attrs
import numpy as np
import pytest
from minimal_components import COMPONENTS, MINIMAL, data_of, frame, params_of

from rths_nodes.analysis.response_errors import measured_names
from rths_nodes.core import protocols, registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.expressions import unit_of
from rths_nodes.core.limits import Limits
from rths_nodes.core.parameters import Spec, declared, required_names
from rths_nodes.core.samples import Command, Measurement, Motion, Target
from rths_nodes.core.validation import from_data, to_data
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.laboratory.sensors import Output, Sensors
from rths_nodes.loop.scenario.schema import Axis, Recording, Scenario
from rths_nodes.loop.supervision.monitor import MonitorParams

every_component = pytest.mark.parametrize(("family", "name"), COMPONENTS, ids=map("-".join, COMPONENTS))

DT, SUBSTEPS, SAMPLES = 0.01, 4, 200
WAVE = 0.05 * np.sin(0.21 * np.arange(SAMPLES)) * np.sin(0.03 * np.arange(SAMPLES))


Drive = Callable[[], Iterator[Any]]
"""Function that resets and drives a component, and yields its results."""


def drive_ground_motion(motion: Any) -> Iterator[Any]:
    times = DT * np.arange(SAMPLES)
    values = motion.sample(times)
    assert values.shape == times.shape
    # independent of the other requested times
    np.testing.assert_array_equal(motion.sample(times[50:60]), values[50:60])
    yield values
    if hasattr(motion, "derivatives"):
        yield from motion.derivatives(times)


def drive_structure(build: Any) -> Iterator[Any]:
    structure = build()
    n = len(structure.names)
    assert structure.influence.shape == (n,)
    for matrix in (structure.mass, structure.damping, structure.stiffness):
        assert matrix.shape == (n, n)
        np.testing.assert_allclose(matrix, matrix.T)
        yield matrix
    assert np.all(np.linalg.eigvalsh(structure.mass) > 0.0)
    assert structure.elastic_energy >= 0.0
    yield structure.restoring_force.force(np.full(n, 0.01))


def drive_damping(model: Any) -> Iterator[Any]:
    mass, stiffness = np.diag([2.0, 1.0]), np.array([[5.0, -2.0], [-2.0, 2.0]])
    damping = model.matrix(mass, stiffness)
    np.testing.assert_allclose(damping, damping.T, atol=1e-12)
    assert np.all(np.linalg.eigvalsh(damping) >= 0.0)
    yield damping


def drive_restoring_force(force: Any) -> Iterator[Any]:
    assert force.initial_stiffness > 0.0
    assert force.elastic_energy >= 0.0
    force.reset()
    for x in WAVE:
        r = force.force(np.array([x]))
        assert r.shape == (1,)
        yield r


def drive_reduction(reduction: Any) -> Iterator[Any]:
    structure = registry.load("structure", "matrices")(params_of("structure", "matrices"))
    shapes, names = reduction.basis(structure, [0])
    assert shapes.shape == (len(structure.names), len(names))
    assert len(set(names)) == len(names)
    yield shapes


def drive_integrator(solver: Any) -> Iterator[Any]:
    solver.reset()
    names = ("displacement", "velocity", "acceleration", "exact_acceleration", "restoring_force")
    for x in WAVE[:-1]:
        for name in names:
            assert getattr(solver, name).shape == (1,), name
            yield getattr(solver, name)
        if solver.external:
            return  # another process computes the steps
        force = np.array([x])
        solver.step(force)
        assert force[0] == x  # unchanged


def drive_ramp(ramp: Any) -> Iterator[Any]:

    def target(step: int) -> Target:
        x = np.full(2, WAVE[step])
        return Target(step, x, x / DT, x / DT**2, x, x, x)

    ramp.start(target(0))
    for step in range(1, SAMPLES // SUBSTEPS):
        ramp.follow(target(step))
        for substep in range(1, SUBSTEPS + 1):
            motion = ramp.step(substep)
            for array in (motion.displacement, motion.velocity, motion.acceleration):
                assert array.shape == (2,)
                yield array


def drive_setup(setup: Any) -> Iterator[Any]:
    for a, b in pairwise(WAVE):
        v = np.array([b - a, b])
        motion = setup.axes(Motion(np.array([a, b]), v, v))
        f = np.array([3.0 * b, a])
        # equal virtual work in both coordinates
        assert setup.forces(f, np.array([a, b])) @ v == pytest.approx(f @ motion.velocity)
        assert motion.displacement.shape == motion.velocity.shape == motion.acceleration.shape == (2,)
        yield motion.displacement


def drive_compensator(compensator: Any) -> Iterator[Any]:
    compensator.reset()
    if compensator.external:
        yield np.array([*compensator.state(), 0.0])
        return  # another process computes the steps
    velocity = np.gradient(WAVE, DT)
    acceleration = np.gradient(velocity, DT)
    for k in range(1, SAMPLES):
        target = Motion(*(np.full(2, values[k]) for values in (WAVE, velocity, acceleration)))
        target.force = np.full(2, 1e3 * WAVE[k - 1])
        measured = np.full(2, 0.9 * WAVE[k - 1])
        command = compensator.step(target, measured)
        assert command.shape == (2,)
        assert target.displacement[0] == WAVE[k]  # unchanged
        assert measured[0] == 0.9 * WAVE[k - 1]  # unchanged
        yield command
        assert len(compensator.state()) == len(compensator.state_names)
        assert set(compensator.state_units) <= {name.partition("[")[0] for name in compensator.state_names}
        yield np.array([*compensator.state(), 0.0])


def drive_quantity(build: Any) -> Iterator[Any]:
    quantity, inputs = build(), len(build.args[0].of)
    assert quantity.unit([unit_of("kN")] * inputs).factor > 0.0
    for value in WAVE:
        yield np.array([quantity.step([value] * inputs)])


def drive_actuator(actuator: Any) -> Iterator[Any]:
    actuator.reset()
    for command in WAVE.tolist():
        actuator.step(command)
        numbers = [actuator.displacement, actuator.velocity, actuator.force]
        assert all(type(number) is float for number in numbers)
        yield np.array(numbers)


def drive_specimen(specimen: Any) -> Iterator[Any]:
    state = list(specimen.initial_state)
    for x, v in zip(WAVE.tolist(), np.gradient(WAVE, DT).tolist(), strict=True):
        rates = specimen.rate(state, x, v)
        assert len(rates) == len(specimen.initial_state)
        state = [s + 1e-3 * DT * rate for s, rate in zip(state, rates, strict=True)]
        yield np.array([specimen.force(state, x, v), *state])


def drive_rig(rig: Any) -> Iterator[Any]:
    rig.reset()
    for x in WAVE:
        if getattr(rig, "external", False):
            yield from (rig.displacement, rig.velocity, rig.force, rig.auxiliary)
            return  # another process computes the steps
        command = np.array([0.1 * x, 0.2 * x])
        rig.step(command, np.ones(len(rig.auxiliary_inputs)))
        assert command[0] == 0.1 * x  # unchanged
        assert rig.auxiliary.shape == (len(rig.auxiliary_names),)
        yield from (rig.displacement, rig.velocity, rig.force, rig.auxiliary)
        assert rig.displacement.shape == rig.velocity.shape == rig.force.shape == (2,)


def drive_force_controller(controller: Any) -> Iterator[Any]:
    assert controller.coupled_to is None or controller.coupled_to >= 0
    controller.reset()
    controller.begin(1e-3, 1e3, WAVE[0], WAVE[0])
    for before, drift in pairwise(WAVE.tolist()):
        command = controller.step(1e3, 1e3 * (1.0 + before), drift)
        assert type(command) is float
        yield np.array([command, controller.correction])


def drive_semi_active(controller: Any) -> Iterator[Any]:
    names = measured_names(1)
    controller.reset()
    for k, x in enumerate(WAVE):
        measured = Measurement(k, np.zeros(1), np.zeros(1), np.zeros(1), x * np.arange(1.0, len(names) + 1.0))
        voltage = controller.step(measured, float(x))
        assert voltage.shape == (len(controller.inputs),)
        yield voltage


def drive_port(port: Any) -> Iterator[Any]:
    assert port.transport_samples >= 0
    if port.external:  # without a rig: only the initial state, and an end at any time
        yield np.array([port.transport_samples, len(port.auxiliary_names)])
        port.safe()
        port.close()
        return
    port.open()
    port.begin()
    assert port.read().sample == 0
    for k in range(1, SAMPLES):
        assert port.wait_tick() == k
        port.write(Command(k, np.full(2, WAVE[k]), np.full(2, WAVE[k])))
        measured = port.read()
        assert measured.sample == k
        assert measured.auxiliary.shape == (len(port.auxiliary_names),)
        for array in (measured.displacement, measured.force, measured.command):
            assert array.shape == (2,)
            yield array
    port.safe()
    port.close()


def build_integrator(cls: Any, params: Any) -> Any:
    structure = None if {"displacement", "history"} & set(attrs.fields_dict(type(params))) else frame()
    return cls(params, structure, WAVE[:, None], DT)


def build_actuator(cls: Any, params: Any) -> Any:
    name, data = "softening_elastomeric", {}
    if params.type_name == "servo_hydraulic_linear":
        name, data = "with_mass", {"mass": 29.0, "specimen": {"type": name}}
    specimen = registry.load("specimen", name)
    return cls(params, DT, specimen(from_data(specimen.Params, data)))


AXIS = {
    "actuator": {"type": "first_order"},
    "specimen": {"type": "kelvin_voigt"},
    "limits": {"stroke": 1.0, "velocity": 1.0, "force": 1.0},
    "sensors": {"displacement_noise_rms": 1e-5, "force_noise_rms": 1.0},
}
BUILD: dict[str, Callable[[Any, Any], Any]] = {
    "ground_motion": lambda cls, params: cls(params, 1),
    "structure": partial,
    "damping": lambda cls, params: cls(params),
    "restoring_force": lambda cls, params: cls(params, 1),
    "reduction": lambda cls, params: cls(params),
    "integrator": build_integrator,
    "ramp": lambda cls, params: cls(params, DT, SUBSTEPS, 2),
    "setup": lambda cls, params: cls(params, 2, 2),
    "compensator": lambda cls, params: cls(params, DT, 2),
    "quantity": lambda cls, params: partial(cls, params, DT),
    "actuator": build_actuator,
    "specimen": lambda cls, params: cls(params),
    "rig": lambda cls, params: cls(params, 1e-3, 2),
    "force_controller": lambda cls, params: cls(params, DT),
    "semi_active": lambda cls, params: cls(params, frame(), DT, measured_names(1)),
    "port": lambda cls, params: cls(params, {name: from_data(Axis, AXIS, f"axes.{name}") for name in "ab"}, DT, 1),
}
"""Functions that build a component; its driver builds another structure or quantity."""


def history(drive: Drive) -> np.ndarray:
    """All results of a component as one array."""
    return np.concatenate([np.ravel(array).copy() for array in drive()])


def driver(family: str, name: str, cls: Any = None) -> Drive:
    component = BUILD[family](cls or registry.load(family, name), params_of(family, name))
    return partial(globals()[f"drive_{family}"], component)


# Contracts


@pytest.mark.parametrize("family", registry.FAMILIES)
def test_every_family_has_driver(family: str) -> None:
    assert f"drive_{family}" in globals(), "write a function that drives a component of the new family"


def test_every_class_is_registered_once() -> None:
    classes = [registry.load(*pair) for pair in COMPONENTS]
    assert len(set(classes)) == len({cls.Params for cls in classes}) == len(COMPONENTS)


def test_minimal_data_belong_to_components() -> None:
    assert set(MINIMAL) <= set(COMPONENTS)


@every_component
def test_results_are_finite_and_repeat_after_reset(family: str, name: str) -> None:
    drive = driver(family, name)
    first = history(drive)
    assert first.size
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(history(drive), first, err_msg="after reset")
    np.testing.assert_array_equal(history(driver(family, name)), first, err_msg="of a second component")


@every_component
def test_component_has_all_members_of_its_protocol(family: str, name: str) -> None:
    protocol = getattr(protocols, family.title().replace("_", ""))  # ground_motion -> GroundMotion
    components = []

    def construct(*arguments: Any) -> Any:
        components.append(registry.load(family, name)(*arguments))
        return components[-1]

    next(driver(family, name, construct)())
    members = {key for base in protocol.__mro__ for key in (*vars(base), *inspect.get_annotations(base))}
    stated = sorted(key for key in members if not key.startswith("_"))
    assert stated
    assert [key for key in stated if not hasattr(components[0], key)] == []


@every_component
def test_parameters_survive_data_and_yaml(family: str, name: str) -> None:
    params = params_of(family, name)
    data = to_data(params)
    assert data.pop("type") == name
    cls = type(params)
    assert from_data(cls, data) == params
    assert from_data(cls, parse(dump(data), "x")) == params
    assert dump(parse(dump(data), "x")) == dump(data)


@every_component
def test_parameters_are_frozen(family: str, name: str) -> None:
    params = params_of(family, name)
    for field in attrs.fields(type(params)):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(params, field.name, 1.0)


@every_component
def test_misspelt_and_missing_keys_are_refused(family: str, name: str) -> None:
    cls, data = registry.load(family, name).Params, data_of(family, name)
    with pytest.raises(ConfigError, match="unknown key 'misspelt'") as caught:
        from_data(cls, data | {"misspelt": 1.0}, family)
    assert str(caught.value).endswith("known: " + (", ".join(sorted(attrs.fields_dict(cls))) or "none"))
    for missing in required_names(cls):
        with pytest.raises(ConfigError, match=rf"{family}\.{missing}: missing"):
            from_data(cls, {key: value for key, value in data.items() if key != missing}, family)


@every_component
def test_numbers_are_checked(family: str, name: str) -> None:
    cls, data = registry.load(family, name).Params, data_of(family, name)
    for key, spec in declared(cls).items():
        if spec.kind not in ("number", "integer"):
            continue
        for value in (float("nan"), float("inf"), True, "1.0", [1.0]):
            with pytest.raises(ConfigError, match=rf"{family}\.{key} = "):
                from_data(cls, data | {key: value}, family)
        for bound, step in ((spec.at_least, -1), (spec.more_than, 0), (spec.at_most, 1), (spec.less_than, 0)):
            if bound is not None:
                with pytest.raises(ConfigError, match=rf"{family}\.{key} = .*must be [<>]"):
                    from_data(cls, data | {key: bound + step}, family)


@pytest.mark.parametrize("family", registry.FAMILIES)
def test_unknown_name_lists_known_names(family: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown .* 'nobody'") as caught:
        registry.load(family, "nobody")
    assert str(caught.value).endswith("known: " + ", ".join(registry.names(family)))


# Documentation


SECTIONS = (Scenario, Axis, Recording, Limits, Sensors, Output, MonitorParams)
DOCUMENTED = [
    *((cls.__name__, cls) for cls in SECTIONS),
    *((".".join(pair), registry.load(*pair).Params) for pair in COMPONENTS),
]
FIELDS = {f"{path}.{key}": spec for path, cls in DOCUMENTED for key, spec in declared(cls).items()}
SYMBOLS = {"m", "s", "N", "J", "kg", "Hz", "rad", "V", "1", "%", "samples", "or"}
SYMBOLS |= {"mm^2", "m^2", "m^3", "s^2", "s^3", "s^4", "N^2"}
PLAIN = ("alpha", "beta", "gamma", "exponent", "scale", "version", "seed")
"""Names of dimensionless numbers, in addition to ratios."""


@every_component
def test_component_has_one_sentence_as_summary(family: str, name: str) -> None:
    cls = registry.load(family, name)
    assert registry.description(family, name).endswith(".")
    assert registry.summary(cls).endswith(".")
    summary = (cls.__doc__ or "").strip().splitlines()[:1]
    assert summary, "the class has no docstring"
    assert "|" not in summary[0], "would break the table of the parameter page"


@pytest.mark.parametrize(("path", "spec"), FIELDS.items(), ids=FIELDS)
def test_parameter_has_description_and_unit(path: str, spec: Spec) -> None:
    assert spec.doc
    assert not {"|", "\n"} & set(spec.doc)
    if spec.kind not in ("number", "vector", "matrix"):
        return
    name = path.rpartition(".")[2]
    assert spec.unit or name.endswith("ratio") or name.split("_")[0] in PLAIN, "a number needs a unit"
    assert set(re.split(r"[ /()]+", spec.unit)) - {""} <= SYMBOLS, "SI units"
    if "mm" in spec.unit:
        assert "mm" in name, "the name of the parameter states a unit that is not SI"
    if name.endswith("percent"):
        assert spec.unit == "%"
