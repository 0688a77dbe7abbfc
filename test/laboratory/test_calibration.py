# SPDX-License-Identifier: Apache-2.0
"""Channels of a rig: what the numbers of its port are, there and back, and in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import FLAG_SATURATED, Command, Measurement
from rths_nodes.core.validation import from_data
from rths_nodes.laboratory.calibration import Calibration, Channel, RigAxis, channels_of, si_names
from rths_nodes.laboratory.ports.wrappers import calibrated


def axis(number: int, **changes: Any) -> SimpleNamespace:
    channels: dict[str, Any] = {
        "displacement": {"unit": "mm", "range": 100.0, "scale": 10.0, "sign": -1},
        "force": {"unit": "kN", "range": 50.0, "scale": 5.0},
        "command": {"unit": "mm", "range": 100.0, "scale": 20.0},
    }
    data = {"name": f"axis_{number}", "number": number} | channels | changes
    return SimpleNamespace(rig_axis=from_data(RigAxis, data))


class Bench:
    """A port that gives what it is told to, and remembers what it gets."""

    auxiliary_names = ("pressure [bar]", "switch")

    def __init__(self, told: Measurement) -> None:
        self.told, self.got = told, None

    def write(self, command: Command) -> None:
        self.got = command

    def read(self) -> Measurement:
        return self.told

    def truth(self) -> None:
        return None


PRESSURE = {"pressure": from_data(Channel, {"unit": "bar", "range": 350.0, "scale": 35.0})}
AXES = {"first": axis(1), "second": axis(0, force={"unit": "N", "range": 1e3})}


def test_numbers_become_si_in_the_order_of_the_test() -> None:
    told = Measurement(
        3,
        np.array([1.0, 2.0]),
        np.array([7.0, -3.0]),
        np.array([0.5, -0.25]),
        np.array([2.0, 1.0]),
        control_mode=b"\x01\x02",
    )
    bench = Bench(told)
    port: Any = calibrated(bench, AXES, PRESSURE)  # type: ignore[arg-type]
    assert port.auxiliary_names == ("pressure [Pa]", "switch")
    found = port.read()
    np.testing.assert_allclose(found.displacement, [-0.020, -0.010])
    np.testing.assert_allclose(found.force, [-15e3, 7.0])
    np.testing.assert_allclose(found.command, [-0.005, 0.010])
    np.testing.assert_allclose(found.auxiliary, [70e5, 1.0])
    assert (found.control_mode, found.sample, found.flags) == (b"\x02\x01", 3, 0)
    assert port.truth() is None


def test_a_command_goes_the_other_way_and_is_told_to_the_bit() -> None:
    values = np.array([0.0123, -0.0077])
    bench = Bench(Measurement(0, np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2)))
    port: Any = calibrated(bench, AXES, PRESSURE)  # type: ignore[arg-type]
    port.write(Command(1, values, values))
    assert bench.got is not None
    np.testing.assert_allclose(bench.got.command, [-0.0077 / 0.020, 0.0123 / 0.020])
    bench.told = Measurement(1, np.zeros(2), np.zeros(2), bench.got.command.copy(), np.zeros(2))
    assert port.read().command.tobytes() == values.tobytes()


def test_the_other_end_is_the_inverse() -> None:
    edge = Calibration(AXES, channels_of(Bench.auxiliary_names, PRESSURE))
    random = np.random.default_rng(1)
    true = Measurement(
        1, *(random.standard_normal((3, 2)) * 1e-3), random.standard_normal(2), control_mode=b"\x01\x02"
    )
    back = edge.measured(edge.shown(true))
    for name in ("displacement", "force", "command", "auxiliary"):
        np.testing.assert_allclose(getattr(back, name), getattr(true, name), rtol=1e-14)
    assert back.control_mode == true.control_mode
    command = Command(1, true.command, true.command)
    np.testing.assert_allclose(edge.driven(edge.sent(command).command), true.command, rtol=1e-14)


@pytest.mark.parametrize(("place", "value"), [(0, 10.0), (1, 10.0), (2, 10.0)])
def test_a_channel_at_its_end_flags_the_sample(place: int, value: float) -> None:
    numbers = [np.zeros(2), np.zeros(2), np.zeros(2)]
    numbers[place][1 if place == 1 else 0] = value
    told = Measurement(1, numbers[0], numbers[1], np.zeros(2), numbers[2])
    edge = Calibration(AXES, channels_of(Bench.auxiliary_names, PRESSURE))
    assert edge.measured(told).flags == FLAG_SATURATED


def test_with_scale_one_and_sign_one_no_bit_changes() -> None:
    si = {"displacement": {"unit": "m", "range": 1.0}, "force": {"unit": "N", "range": 1e6}}
    edge = Calibration({"only": axis(0, **si, command={"unit": "m", "range": 1.0})})
    values = np.array([0.1 + 0.2])
    found = edge.measured(Measurement(1, values, values, values))
    assert all(each.tobytes() == values.tobytes() for each in (found.displacement, found.force, found.command))
    assert edge.sent(Command(1, values, values)).command.tobytes() == values.tobytes()


def test_a_channel_must_be_one_of_the_port_and_in_its_unit() -> None:
    with pytest.raises(
        ConfigError, match=naming("rig_file.auxiliary.oil", "oil", "unknown", "pressure", "switch")
    ):
        channels_of(Bench.auxiliary_names, {"oil": PRESSURE["pressure"]})
    volts = {"pressure": from_data(Channel, {"unit": "V", "range": 10.0})}
    with pytest.raises(ConfigError, match=naming("auxiliary.pressure.unit", "V")):
        channels_of(Bench.auxiliary_names, volts)
    assert si_names(("a [V]",), (None,)) == ("a [V]",)
