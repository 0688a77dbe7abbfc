# SPDX-License-Identifier: Apache-2.0
"""Tests of linear laws by matrices, transfer functions and files, and of PI control with a phase lead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loop_parts import make
from messages import mentions, naming
from scipy import io, signal

import rths_nodes
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Motion

DT = 1.0 / 4096.0
T_1, T_2, K_P, K_I = 50.83163360273612 / 8570.397339444286, 1.0 / 8570.397339444286, 2.0, 95.0
KIT: dict[str, Any] = {
    "A": [[-1.0 / T_2, 0.0], [1.0 - T_1 / T_2, 0.0]],
    "B": [[1.0 / T_2, 0.0], [T_1 / T_2, -1.0]],
    "C": [[K_P * (1.0 - T_1 / T_2), K_I]],
    "D": [[K_P * T_1 / T_2, -K_P]],
}
"""Controller of the RTHS benchmark's kit: a phase lead q' = (y - q) / T_2, w = q + T_1 q', then PI on w - m."""
OF_KIT = {"inputs": ["target", "measured"], "target_of": "measurement"}


def commands(law: Any, targets: np.ndarray, measured: np.ndarray, force: np.ndarray | None = None) -> np.ndarray:
    """Commands ``(samples, n_axes)`` of targets ``(samples, 3, n_axes)`` and measurements."""
    forces = np.zeros_like(measured) if force is None else force
    rows = zip(targets, measured, forces, strict=True)
    return np.array([law.step(Motion(x, v, a, force=f), m) for (x, v, a), m, f in rows])


@pytest.fixture
def motion() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    return generator.normal(size=(400, 3, 1)) * 1e-3, generator.normal(size=(400, 1)) * 1e-3


def test_matrices_of_benchmark_equal_pi_lead(motion: Any) -> None:
    matrices = make("compensator", "linear", DT, 1, law=KIT, **OF_KIT)
    published = make("compensator", "pi_lead", DT, 1)
    np.testing.assert_allclose(commands(matrices, *motion), commands(published, *motion), atol=1e-14)


def test_benchmark_with_matrices_equals_published_law() -> None:
    """The benchmark's case 1 with its sample controller."""
    published, result = (
        rths_nodes.run("rths_benchmark_2020", ["duration=8", f"compensator={law}"], case="pi_1")
        for law in ({"type": "pi_lead"}, {"type": "linear", "law": KIT, **OF_KIT})
    )
    assert np.abs(published.displacement).max() > 1e-3
    np.testing.assert_allclose(result.true_displacement, published.true_displacement, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(result.displacement, published.displacement, rtol=0.0, atol=1e-12)


def test_transfer_function_equals_scipy_tustin(motion: Any) -> None:
    numerator, denominator = [T_1 * T_1, 2.0 * T_1, 1.0], [T_2 * T_2, 2.0 * T_2, 1.0]
    b, a, _ = signal.cont2discrete((numerator, denominator), DT, "bilinear")
    law = {"numerator": numerator, "denominator": denominator}
    targets, measured = motion
    result = commands(make("compensator", "linear", DT, 1, law=law), targets, measured)
    expected = signal.lfilter(b.ravel(), a, targets[:, 0, 0])
    np.testing.assert_allclose(result[:, 0], expected, rtol=1e-9, atol=1e-12)
    sampled = law | {"numerator": b.ravel().tolist(), "denominator": a.tolist(), "Ts": DT}
    again = commands(make("compensator", "linear", DT, 1, law=sampled), targets, measured)
    np.testing.assert_allclose(again, result, rtol=1e-9, atol=1e-12)


def test_inputs_have_declared_order_for_all_axes() -> None:
    """Two axes, a different gain for each input, no states."""
    names = ["force", "target", "error", "velocity", "acceleration", "measured"]
    gains = np.arange(24.0).reshape(2, 12) + 1.0
    law = make("compensator", "linear", DT, 2, law={"D": gains.tolist()}, inputs=names)
    generator = np.random.default_rng(6)
    targets, measured, force = (generator.normal(size=(9, 3, 2)), *generator.normal(size=(2, 9, 2)))
    result = commands(law, targets, measured, force)
    previous = np.vstack((np.zeros((1, 2)), targets[:-1, 0]))
    inputs = np.hstack((force, targets[:, 0], previous - measured, targets[:, 1], targets[:, 2], measured))
    np.testing.assert_allclose(result, inputs @ gains.T, rtol=1e-12)


def test_frequency_response_equals_response_to_sine() -> None:
    """Feedforward of second order behind a low pass: response to a sine of 3 Hz."""
    omega = 2.0 * np.pi * 3.0
    continuous = {"A": [[-200.0]], "B": [[200.0, 4.0, 0.02]], "C": [[1.0]]}
    law = make("compensator", "linear", DT, 1, law=continuous, inputs=["target", "velocity", "acceleration"])
    phase = np.exp(1j * omega * DT * np.arange(20_000))
    targets = np.stack([(phase * (1j * omega) ** power).real for power in range(3)], axis=1)[:, :, None]
    result = commands(law, targets, np.zeros((20_000, 1)))[-4096:, 0]
    expected = (law.frequency_response(np.array([omega]))[0] * phase[-4096:]).real
    np.testing.assert_allclose(result, expected, atol=1e-9)
    with pytest.raises(ConfigError, match=naming("fed", "response")):
        make("compensator", "linear", DT, 1, law=KIT, **OF_KIT).frequency_response(np.array([omega]))


def test_lead_shifts_target() -> None:
    """Cubic motion, from the second sample on; the first has no jerk yet."""
    lead, times = 0.01, DT * np.arange(50)
    data = {"law": {"D": [[2.0, 0.5, 0.1]]}, "inputs": ["target", "velocity", "acceleration"]}

    def targets(t: np.ndarray) -> np.ndarray:
        return np.stack([0.1 * t**3 + 0.02 * t, 0.3 * t**2 + 0.02, 0.6 * t], axis=1)[:, :, None]

    plain, led = (make("compensator", "linear", DT, 1, lead=value, **data) for value in (0.0, lead))
    rest = np.zeros((50, 1))
    expected = commands(plain, targets(times + lead), rest)
    np.testing.assert_allclose(commands(led, targets(times), rest)[1:], expected[1:], rtol=1e-9)
    turned = [law.frequency_response(np.array([5.0]))[0] for law in (led, plain)]
    assert turned[0] / turned[1] == pytest.approx(np.exp(5.0j * lead), abs=1e-6)


def write_law(path: Path, version: str) -> Path:
    values = {name: np.array(rows) for name, rows in KIT.items()} | {"Ts": 0.0, "note": "of the kit"}
    if version == "yaml":
        path.write_text("\n".join(f"{name}: {rows}" for name, rows in KIT.items()))
    elif version == "5":
        io.savemat(path, values)
    else:
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w", userblock_size=512) as file:
            for name, value in values.items():
                stored = np.frombuffer(value.encode("utf-16-le"), np.uint16) if isinstance(value, str) else value
                item = file.create_dataset(name, data=np.atleast_2d(stored).T)
                item.attrs["MATLAB_class"] = np.bytes_("char" if isinstance(value, str) else "double")
    return path


@pytest.mark.parametrize(("name", "version"), [("law.yaml", "yaml"), ("law.mat", "5"), ("law.mat", "7.3")])
def test_law_is_read_from_file(name: str, version: str, tmp_path: Path, motion: Any) -> None:
    result = make("compensator", "linear", DT, 1, file=str(write_law(tmp_path / name, version)), **OF_KIT)
    np.testing.assert_array_equal(
        commands(result, *motion), commands(make("compensator", "linear", DT, 1, law=KIT, **OF_KIT), *motion)
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, ("compensator.file", "compensator.law")),
        ({"law": {"A": [[0.5]]}}, ("B", "C", "together")),
        ({"law": KIT | {"numerator": [1.0], "denominator": [1.0]}}, ("A", "B", "C", "D", "numerator")),
        ({"law": {"numerator": [1.0, 1.0], "denominator": [1.0]}}, ("law.numerator", "denominator", "first")),
        ({"law": KIT | {"D": [[1.0]]}}, ("2", "B", "C", "1", "D")),
        ({"law": KIT | {"Ts": 1e-3}, **OF_KIT}, ("law", "Ts", "0.001 s", "0.000244140625 s")),
        ({"law": KIT}, ("2", "1", "outputs", "compensator.inputs")),
        ({"law": {"D": [[1.0, 1.0]]}, "inputs": ["target", "target"]}, ("compensator.inputs", "target", "twice")),
        ({"file": "missing.mat"}, ("missing.mat", "read")),
        ({"file": "missing.yaml"}, ("missing.yaml", "read")),
    ],
)
def test_invalid_law_is_refused(data: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as error:
        make("compensator", "linear", DT, 1, **data)
    assert mentions(str(error.value), *words)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("law.mat", b"not one", ("file", "MATLAB")),
        ("law.yaml", b"gain: 2\n", ("gain", "unknown", "A")),
        ("law.yaml", b"", ("none", "A", "B", "C", "D")),
    ],
)
def test_file_without_law_is_refused_with_path(
    name: str, content: bytes, words: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        make("compensator", "linear", DT, 1, file=str(path))
    assert mentions(str(error.value), path, *words)


def pi_commands(law: Any, target: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Commands for one axis, ``(n,)``."""
    rest = np.zeros_like(target)
    return commands(law, np.stack([target, rest, rest], axis=1)[:, :, None], measured[:, None])[:, 0]


def tustin(numerator: tuple[float, ...], denominator: tuple[float, ...], values: np.ndarray) -> np.ndarray:
    b, a, _ = signal.cont2discrete((numerator, denominator), DT, "bilinear")
    return np.asarray(signal.lfilter(b.ravel(), a, values))


def test_pi_lead_equals_published_controller() -> None:
    """Reference: the benchmark's lead and PI by scipy; target and measurement belong to the previous sample."""
    target, measured = np.random.default_rng(3).normal(size=(2, 500)) * 1e-3
    led = tustin((50.83163360273612, 8570.397339444286), (1.0, 8570.397339444286), target)
    error = np.append(0.0, led[:-1]) - measured
    expected = tustin((2.0, 95.0), (1.0, 0.0), error)
    result = pi_commands(make("compensator", "pi_lead", DT, 1), target, measured)
    np.testing.assert_allclose(result, expected, atol=1e-15)


def test_pi_lead_state_is_integral_part() -> None:
    law = make("compensator", "pi_lead", DT, 1, proportional=0.0)
    result = pi_commands(law, np.full(100, 1e-3), np.zeros(100))
    assert law.state() == [result[-1]]
    assert result[-1] > 0.0
