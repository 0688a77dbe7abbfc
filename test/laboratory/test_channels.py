# SPDX-License-Identifier: Apache-2.0
"""Tests of the channels of a rig: calibration, corrections of the force, simulated sensors."""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from faulty_sensors import FaultySensors
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_SATURATED, Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.calibration import Calibration, Channel, RigAxis, channels_of, si_names
from rths_nodes.laboratory.corrections import Corrections, FeedbackFilter, low_pass, shown_forces
from rths_nodes.laboratory.ports.wrappers import CalibratedPort, CorrectedPort
from rths_nodes.laboratory.sensors import Output, SensorPair, Sensors, converted


def axis(number: int, **changes: Any) -> SimpleNamespace:
    channels: dict[str, Any] = {
        "displacement": {"unit": "mm", "range": 100.0, "scale": 10.0, "sign": -1},
        "force": {"unit": "kN", "range": 50.0, "scale": 5.0},
        "command": {"unit": "mm", "range": 100.0, "scale": 20.0},
    }
    data = {"name": f"axis_{number}", "number": number} | channels | changes
    return SimpleNamespace(rig_axis=from_data(RigAxis, data))


NAMES = ("pressure [bar]", "switch")


class EmulatedPort:
    """Returns a preset measurement and stores the last command."""

    auxiliary_names = NAMES
    command: Command | None = None

    def __init__(self, measurement: Measurement) -> None:
        self.measurement = measurement

    def write(self, command: Command) -> None:
        self.command = command

    def read(self) -> Measurement:
        return self.measurement

    def truth(self) -> None:
        return None


PRESSURE = {"pressure": from_data(Channel, {"unit": "bar", "range": 350.0, "scale": 35.0})}
AXES = {"first": axis(1), "second": axis(0, force={"unit": "N", "range": 1e3})}


def test_measurement_is_converted_to_si_and_reordered() -> None:
    values = map(np.array, ([1.0, 2.0], [7.0, -3.0], [0.5, -0.25], [2.0, 1.0]))
    emulated = EmulatedPort(Measurement(3, *values, control_mode=b"\x01\x02"))
    port: Any = CalibratedPort(emulated, AXES, PRESSURE)  # type: ignore[arg-type]
    assert port.auxiliary_names == ("pressure [Pa]", "switch")
    measured = port.read()
    np.testing.assert_allclose(measured.displacement, [-0.020, -0.010])
    np.testing.assert_allclose(measured.force, [-15e3, 7.0])
    np.testing.assert_allclose(measured.command, [-0.005, 0.010])
    np.testing.assert_allclose(measured.auxiliary, [70e5, 1.0])
    assert (measured.control_mode, measured.sample, measured.flags) == (b"\x02\x01", 3, 0)
    assert port.truth() is None


def test_command_is_converted_and_read_back_exactly() -> None:
    values = np.array([0.0123, -0.0077])
    emulated = EmulatedPort(Measurement(0, *np.zeros((4, 2))))
    port: Any = CalibratedPort(emulated, AXES, PRESSURE)  # type: ignore[arg-type]
    port.write(Command(1, values, values))
    assert emulated.command is not None
    np.testing.assert_allclose(emulated.command.command, [-0.0077 / 0.020, 0.0123 / 0.020])
    emulated.measurement = Measurement(1, *np.zeros((2, 2)), emulated.command.command.copy(), np.zeros(2))
    assert port.read().command.tobytes() == values.tobytes()


def test_calibration_is_inverted_exactly() -> None:
    calibration = Calibration(AXES, channels_of(NAMES, PRESSURE))
    random = np.random.default_rng(1)
    values = random.standard_normal((3, 2)) * 1e-3
    true = Measurement(1, *values, random.standard_normal(2), control_mode=b"\x01\x02")
    back = calibration.measured(calibration.shown(true))
    for name in ("displacement", "force", "command", "auxiliary"):
        np.testing.assert_allclose(getattr(back, name), getattr(true, name), rtol=1e-14)
    assert back.control_mode == true.control_mode
    command = Command(1, true.command, true.command)
    np.testing.assert_allclose(calibration.driven(calibration.sent(command).command), true.command, rtol=1e-14)


@pytest.mark.parametrize(("channel", "value"), [(0, 10.0), (1, 10.0), (2, 10.0)])
def test_channel_at_end_of_range_flags_sample(channel: int, value: float) -> None:
    values = np.zeros((3, 2))
    values[channel, 1 if channel == 1 else 0] = value
    ends = {"unit": "mm", "range": 110.0, "scale": 11.0}  # 10.0 * 11 * 0.001 < 0.11
    calibration = Calibration(AXES | {"second": axis(0, displacement=ends)}, channels_of(NAMES, PRESSURE))
    assert calibration.measured(Measurement(1, *values[:2], np.zeros(2), values[2])).flags == FLAG_SATURATED


def test_unit_scale_preserves_bits() -> None:
    si = {"displacement": {"unit": "m", "range": 1.0}, "force": {"unit": "N", "range": 1e6}}
    calibration = Calibration({"only": axis(0, **si, command={"unit": "m", "range": 1.0})})
    values = np.array([0.1 + 0.2])
    measured = calibration.measured(Measurement(1, values, values, values))
    for channel in (measured.displacement, measured.force, measured.command):
        assert channel.tobytes() == values.tobytes()
    assert calibration.sent(Command(1, values, values)).command.tobytes() == values.tobytes()


def test_unknown_channel_or_wrong_unit_is_refused() -> None:
    parts = naming("rig_file.auxiliary.oil", "oil", "unknown", "pressure", "switch")
    with pytest.raises(ConfigError, match=parts):
        channels_of(NAMES, {"oil": PRESSURE["pressure"]})
    volts = {"pressure": from_data(Channel, {"unit": "V", "range": 10.0})}
    with pytest.raises(ConfigError, match=naming("auxiliary.pressure.unit", "V")):
        channels_of(NAMES, volts)
    assert si_names(("a [V]",), (None,)) == ("a [V]",)
    assert channels_of(["gauge [1] top"], {"gauge [1] top": PRESSURE["pressure"]}) == (PRESSURE["pressure"],)


# Corrections of the measured force

DT = 1.0 / 1024.0
OMEGA = 2.0 * math.pi * 3.0
K, MASS, FRICTION = 2e6, 150.0, 800.0
CHANNELS = ("pressure [Pa]", "accelerometer [m/s^2]")
FIXTURE = {"fixture_mass": MASS, "acceleration": "accelerometer"}
RUB = {"friction": FRICTION, "smoothing_velocity": 1e-3}


def corrections(simulated: bool = False, low: dict[str, Any] | None = None, **keys: Any) -> CorrectedPort:
    """Corrections of the second of two axes."""
    rig = SimpleNamespace(
        corrections=from_data(Corrections, keys) if keys else None,
        feedback_filter=None if low is None else from_data(FeedbackFilter, low),
    )
    none = SimpleNamespace(corrections=None, feedback_filter=None)
    axes = {"a": SimpleNamespace(rig_axis=none), "b": SimpleNamespace(rig_axis=rig)}
    return CorrectedPort(SimpleNamespace(auxiliary_names=CHANNELS), axes, DT, simulated)  # type: ignore[arg-type]


def measured(k: int, x: float, force: float, acceleration: float = 0.0) -> Measurement:
    return Measurement(k, np.array([0.5, x]), np.array([0.5, force]), np.zeros(2), np.array([7.0, acceleration]))


def test_fixture_mass_is_corrected_under_harmonic_motion() -> None:
    """The load cell measures (k - m omega^2) x, the accelerometer -omega^2 x; the specimen has k x."""
    correction = corrections(**FIXTURE)
    assert correction.names == ("uncorrected_force_b [N]",)
    for k in range(2000):
        x = 0.01 * math.sin(OMEGA * k * DT)
        shown = measured(k, x, (K - MASS * OMEGA**2) * x, -(OMEGA**2) * x)
        result = correction.corrected(shown)
        assert result.force[1] == pytest.approx(K * x, rel=1e-9)
        assert result.force[0] == 0.5
        np.testing.assert_array_equal(result.auxiliary, [*shown.auxiliary, shown.force[1]])


def test_friction_is_corrected_under_triangular_motion() -> None:
    """Coulomb friction follows the sign of the velocity, far above the smoothing velocity."""
    correction = corrections(**RUB)
    path = 0.01 * (2.0 / math.pi) * np.arcsin(np.sin(OMEGA * np.arange(2000) * DT))
    for k, x in enumerate(path.tolist()):
        velocity = x - path[k - 1] if k else 0.0
        if abs(abs(velocity) - 0.01 * (2.0 / math.pi) * OMEGA * DT) > 1e-9:
            correction.corrected(measured(k, x, 0.0))  # reversals, where the velocity changes sign
            continue
        result = correction.corrected(measured(k, x, K * x + math.copysign(FRICTION, velocity)))
        assert result.force[1] == pytest.approx(K * x, rel=1e-9, abs=1e-6)


def test_smoothed_friction_is_tanh_of_velocity() -> None:
    correction, velocity = corrections(**RUB), 0.7e-3
    correction.corrected(measured(0, 0.0, 0.0))
    for k in (1, 2, 5):  # samples may be missing
        result = correction.corrected(measured(k, velocity * k * DT, 100.0))
        assert result.force[1] == pytest.approx(100.0 - FRICTION * math.tanh(0.7), rel=1e-9)


def test_filter_follows_corrections_and_starts_settled() -> None:
    low = {"order": 2, "cutoff": 40.0, "delay": 5.6e-3}
    correction, plain = corrections(low=low, **FIXTURE), from_data(FeedbackFilter, low).built(DT)
    plain.start(K * 0.01 * math.sin(1.0))
    for k in range(300):
        x = 0.01 * math.sin(OMEGA * k * DT + 1.0)
        result = correction.corrected(measured(k, x, (K - MASS * OMEGA**2) * x, -(OMEGA**2) * x))
        assert result.force[1] == pytest.approx(plain.step(K * x), rel=1e-9)


def test_nan_does_not_remain_in_filter() -> None:
    correction = corrections(low={"order": 3, "cutoff": 40.0, "delay": 8e-3})
    assert correction.corrected(measured(0, 0.0, 5.0)).force[1] == pytest.approx(5.0)
    assert math.isnan(correction.corrected(measured(1, 0.0, math.nan)).force[1])
    assert correction.corrected(measured(2, 0.0, 6.0)).force[1] == pytest.approx(6.0)


def test_simulated_force_is_not_corrected() -> None:
    correction = corrections(simulated=True, **FIXTURE, **RUB)
    assert correction.corrected(measured(1, 0.1, 33.0, 9.0)).force[1] == 33.0
    assert correction.names


def test_uncorrected_forces_are_identified_by_name() -> None:
    names = (*CHANNELS, *corrections(**FIXTURE).names)
    assert shown_forces(names, ("a", "b")) == [(1, 2)]
    assert shown_forces(CHANNELS, ("a", "b")) == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"fixture_mass": 5.0}, ("at.fixture_mass", "5", "channel")),
        ({"acceleration": "a"}, ("at.acceleration", "a", "fixture_mass")),
        ({"friction": 5.0}, ("at.friction", "5", "smoothing_velocity")),
        ({"friction": -5.0, "smoothing_velocity": 1.0}, ("at.friction", "-5 N", "> 0")),
        ({}, ("corrects", "nothing")),
    ],
)
def test_incomplete_correction_is_refused(keys: dict[str, Any], message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=naming(*message)):
        from_data(Corrections, keys, "at")


def test_fixture_mass_without_acceleration_is_refused() -> None:
    correction = from_data(Corrections, FIXTURE)
    with pytest.raises(ConfigError, match=naming("channels", "pressure")):
        correction.check_channels({"pressure": "Pa"}, "at")
    with pytest.raises(ConfigError, match=r"at.acceleration: unknown .*'accelerometer'.* known: other"):
        correction.check_channels({"pressure": "Pa", "other": "m/s^2"}, "at")
    rig = SimpleNamespace(corrections=correction, feedback_filter=None)
    port: Any = SimpleNamespace(auxiliary_names=("accelerometer [V]",))
    with pytest.raises(ConfigError, match=naming("channel", "acceleration")):
        CorrectedPort(port, {"b": SimpleNamespace(rig_axis=rig)}, DT, False)


@pytest.mark.parametrize(
    ("delay", "accepted"), [(1.0, True), (1.09, True), (0.91, True), (1.11, False), (0.8, False)]
)
def test_declared_delay_must_agree_with_filter(delay: float, accepted: bool) -> None:
    """Delay of a filter of order 2: sqrt(2) / omega_c."""
    exact = math.sqrt(2.0) / (2.0 * math.pi * 20.0)
    low = from_data(FeedbackFilter, {"order": 2, "cutoff": 20.0, "delay": delay * exact})
    refused = pytest.raises(ConfigError, match=naming("at.delay", "10%", "0.01124 s"))
    with nullcontext() if accepted else refused:
        low.check_rate(1.0 / DT, "at")


def test_cutoff_above_nyquist_frequency_is_refused() -> None:
    with pytest.raises(ConfigError, match=naming("at.cutoff", "600 Hz", "< 512 Hz", "servo_rate")):
        from_data(FeedbackFilter, {"order": 2, "cutoff": 600.0, "delay": 1.0}).check_rate(1.0 / DT, "at")


def test_axis_without_rig_has_no_filter() -> None:
    assert low_pass(SimpleNamespace(rig_axis=None), DT) is None


# Simulated sensors


def pair(seed: int = 1, axis: str = "story_1", **data: float) -> SensorPair:
    return SensorPair(from_data(Sensors, data), seed, axis, DT)


def readings(sensors: SensorPair, count: int, displacement: float = 0.0, force: float = 0.0) -> np.ndarray:
    return np.array([sensors.measure(displacement, force) for _ in range(count)])


NOISY: dict[str, Any] = {"displacement_noise_rms": 2e-5, "force_noise_rms": 300.0}


def test_default_measurement_is_exact() -> None:
    assert pair().measure(0.123456789, -4.2) == (0.123456789, -4.2)


def test_noise_has_rms_and_zero_mean() -> None:
    noise = readings(pair(**NOISY), 20_000, 0.01, 5.0) - [0.01, 5.0]
    np.testing.assert_allclose(noise.std(axis=0), [2e-5, 300.0], rtol=0.02)
    np.testing.assert_allclose(noise.mean(axis=0) / [2e-5, 300.0], 0.0, atol=0.03)
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.03


def test_noise_depends_on_seed_and_axis() -> None:
    first = readings(pair(**NOISY), 600)
    np.testing.assert_array_equal(readings(pair(**NOISY), 600), first)
    assert not np.array_equal(readings(pair(seed=2, **NOISY), 600), first)
    assert not np.array_equal(readings(pair(axis="story_2", **NOISY), 600), first)


def test_noise_of_channels_is_independent() -> None:
    both, force_only = readings(pair(**NOISY), 300), readings(pair(force_noise_rms=300.0), 300)
    np.testing.assert_array_equal(force_only[:, 1], both[:, 1])
    assert not force_only[:, 0].any()


def test_reset_restarts_sensor_noise() -> None:
    sensors = pair(**NOISY)
    first = readings(sensors, 300)
    sensors.reset()
    np.testing.assert_array_equal(readings(sensors, 300), first)


def test_sensor_resolution_rounds_to_nearest_step() -> None:
    sensors = pair(displacement_resolution=0.5, force_resolution=10.0)
    assert sensors.measure(1.3, -26.0) == (1.5, -30.0)
    assert sensors.measure(1.2, -24.0) == (1.0, -20.0)


@pytest.mark.parametrize(("value", "seen"), [(0.29, 0.29), (0.31, 0.3), (-0.31, -0.3), (0.3, 0.3)])
def test_channel_saturates_beyond_range(value: float, seen: float) -> None:
    sensors = pair(displacement_range=0.3)
    assert sensors.measure(value, 1e9) == (seen, 1e9)
    assert sensors.saturated == (abs(value) >= 0.3)
    sensors.measure(0.0, 0.0)
    assert not sensors.saturated


def test_nan_and_infinity_are_measured() -> None:
    """The limits must see them."""
    sensors = pair(displacement_resolution=1e-6, force_resolution=1.0, displacement_range=0.3)
    displacement, force = sensors.measure(math.nan, math.inf)
    assert math.isnan(displacement)
    assert force == math.inf


def test_force_delay_shifts_samples() -> None:
    forces = [1.0, -2.0, 3.0, 4.0, 5.0]
    late = pair(force_delay=2)
    seen = [late.measure(0.1, force) for force in forces]
    assert seen == [(0.1, force) for force in [0.0, 0.0, *forces[:-2]]]
    late.reset()
    assert late.measure(0.1, 7.0) == (0.1, 0.0)


def test_force_delay_includes_noise() -> None:
    prompt, late = readings(pair(**NOISY), 100, force=5.0), readings(pair(**NOISY, force_delay=3), 100, force=5.0)
    np.testing.assert_array_equal(late[3:, 1], prompt[:-3, 1])
    np.testing.assert_array_equal(late[:, 0], prompt[:, 0])


def test_output_converter_rounds_and_saturates() -> None:
    output = from_data(Output, {"resolution": 1e-3, "range": 0.0105})
    outputs = [converted(value, *output.converter) for value in (0.00049, 0.0026, -0.0026, 0.02, -1.0)]
    assert outputs == [0.0, pytest.approx(0.003), pytest.approx(-0.003), 0.0105, -0.0105]
    assert converted(0.123456789, *from_data(Output, {}).converter) == 0.123456789


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        ("frozen", [1.0, 1.0, 1.0, 1.0]),
        ("flickers", [1.25, 1.0, 1.25, 1.0]),
        ("flipped", [1.0, 0.0, -1.0, -2.0]),
        ("drifts", [1.5, 3.0, 4.5, 6.0]),
    ],
)
def test_faulty_channel_recovers(fault: str, shown: list[float]) -> None:
    sensors = FaultySensors.of(SensorPair(Sensors(displacement_resolution=0.25), 1, "a", 0.5))
    assert sensors.measure(0.0, 7.0) == (0.0, 7.0)
    sensors.goes_wrong("displacement", fault, 0.5)
    assert [sensors.measure(value, 7.0) for value in (1.0, 2.0, 3.0, 4.0)] == [(value, 7.0) for value in shown]
    sensors.goes_wrong("displacement", "right")
    assert sensors.measure(5.0, 7.0) == (5.0, 7.0)
