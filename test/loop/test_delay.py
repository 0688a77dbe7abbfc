# SPDX-License-Identifier: Apache-2.0
"""Tests of the delay index: definition, offsets, chunks of samples, memory."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from rths_nodes.loop.indices.tracking import CHUNK, Delay, Tracking, delay_samples

LONGEST = 100


def by_definition(target: np.ndarray, measured: np.ndarray, longest: int) -> float:
    """Maximum of Pearson's coefficient over all lags, refined by a parabola, in long double."""
    c, m = (values.astype(np.longdouble) for values in (target, measured))
    n = len(c) - 2 * longest
    middle = m[longest : longest + n] - m[longest : longest + n].mean()
    coefficients = []
    for lag in range(2 * longest + 1):
        shifted = c[lag : lag + n] - c[lag : lag + n].mean()
        coefficients.append((shifted * middle).sum() / np.sqrt((shifted**2).sum() * (middle**2).sum()))
    best = int(np.argmax(coefficients))
    left, top, right = coefficients[best - 1 : best + 2]
    return float(longest - (best + 0.5 * (left - right) / (left - 2.0 * top + right)))


def motion(samples: int, lag: float) -> tuple[np.ndarray, np.ndarray]:
    """Earthquake-like motion of 1 mm, and the same motion delayed by ``lag`` samples with noise, m."""
    time = np.arange(float(samples))
    waves = ((0.7, 0.1), (1.9, 2.0), (4.3, 4.0))

    def wave(at: np.ndarray) -> np.ndarray:
        return 1e-3 * sum(np.sin(2.0 * np.pi * f / 1024.0 * at + p) / f for f, p in waves)

    noise = np.random.default_rng(11).normal(size=samples)
    return wave(time), wave(time - lag) + 1e-6 * noise


def delay_of(c: np.ndarray, m: np.ndarray, longest: int = LONGEST) -> float:
    return float(delay_samples(c[:, None], m[:, None], longest)[0])


def fed(c: np.ndarray, m: np.ndarray, sizes: list[int], spread: bool = False, queried: bool = False) -> Delay:
    """Delay of samples that arrive in parts of cycling ``sizes``, optionally evaluated after each part."""
    delay, done, turn = Delay(LONGEST, spread), 0, 0
    while done < len(c):
        end = done + sizes[turn % len(sizes)]
        delay.extend(c[done:end], m[done:end])
        if queried:
            delay.samples()
        done, turn = end, turn + 1
    return delay


@pytest.mark.parametrize("samples", [5 * LONGEST, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 700])
@pytest.mark.parametrize("lag", [12.6, -3.2])
def test_delay_equals_definition(samples: int, lag: float) -> None:
    c, m = motion(samples, lag)
    assert delay_of(c, m) == pytest.approx(by_definition(c, m, LONGEST), rel=1e-9)


@pytest.mark.parametrize("offset", [0.1, -25.0])
def test_offset_costs_no_digits(offset: float) -> None:
    """Only the digits that the offset itself takes from the 1 mm of motion are missing."""
    c, m = motion(2 * CHUNK + 100, 12.6)
    delay = delay_of(c + offset, m - 2.0 * offset)
    assert delay == pytest.approx(by_definition(c + offset, m - 2.0 * offset, LONGEST), rel=1e-9)
    assert delay == pytest.approx(by_definition(c, m, LONGEST), rel=1e-8)


def test_later_offset_is_part_of_the_motion() -> None:
    """The later values do not move about the first values."""
    c, m = motion(3 * CHUNK, 12.6)
    c[CHUNK + 50 :] += 0.1
    m[CHUNK + 63 :] += 0.1
    assert delay_of(c, m) == pytest.approx(by_definition(c, m, LONGEST), rel=1e-9)


@pytest.mark.parametrize(("drift", "digits"), [(0.01, 1e-10), (0.1, 1e-8)])
def test_ramp_costs_digits_by_its_square(drift: float, digits: float) -> None:
    """1 mm of motion after a ramp of 10 mm or 100 mm in 50 samples."""
    c, m = motion(12 * CHUNK, 12.6)
    c = c + drift * np.clip(np.arange(len(c)) / 50.0, 0.0, 1.0)
    m = m + drift * np.clip((np.arange(len(m)) - 12.6) / 50.0, 0.0, 1.0)
    assert delay_of(c, m) == pytest.approx(by_definition(c, m, LONGEST), rel=digits)


@pytest.mark.parametrize("longest", [CHUNK // 2 + 7, CHUNK + 100])
def test_lags_longer_than_a_chunk(longest: int) -> None:
    c, m = motion(3 * longest + CHUNK, 12.6)
    assert delay_of(c, m, longest) == pytest.approx(by_definition(c, m, longest), rel=1e-8)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0 / 3.0, 1e-30])
def test_constant_history_has_no_delay(value: float) -> None:
    """0.1 has no exact representation; the mean of its differences over a chunk has."""
    c, m = motion(2 * CHUNK + 700, 3.0)
    still = np.full_like(c, value)
    for pair in ((still, m), (c, still), (still, still)):
        assert math.isnan(delay_of(*pair))


def test_single_step_at_record_edge_has_no_delay() -> None:
    """At some lags it does not move; the remaining sum of squares is rounding."""
    c, m = motion(2 * CHUNK, 3.0)
    step = np.full_like(c, 0.1)
    step[:30] = 0.3
    assert math.isnan(delay_of(step, m))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_samples_give_no_delay_or_warning(value: float) -> None:
    for sample in (LONGEST, CHUNK + 5, 2 * CHUNK + 5):
        c, m = motion(2 * CHUNK + 700, 3.0)
        m[sample] = value
        assert math.isnan(delay_of(c, m))


@pytest.mark.parametrize("sizes", [[1], [7, 1, 640], [CHUNK], [CHUNK - 1, 3], [3 * CHUNK + 5]])
def test_delay_is_independent_of_partition_to_the_bit(sizes: list[int]) -> None:
    c, m = motion(3 * CHUNK + 700, 12.6)
    delay = fed(c, m, [len(c)]).samples()
    assert fed(c, m, sizes).samples() == delay
    assert fed(c, m, sizes, spread=True).samples() == delay
    assert fed(c, m, [max(size, 300) for size in sizes], queried=True).samples() == delay


def test_tracking_delay_equals_batch_delay() -> None:
    (c, m), (x, y) = motion(2 * CHUNK + 30, 12.6), motion(2 * CHUNK + 30, -4.0)
    tracking = Tracking(2, LONGEST)
    for sample in range(len(c)):
        tracking.step(sample, [c[sample], x[sample]], [m[sample], y[sample]], [0.0, 0.0])
        if sample in (10, CHUNK + 900):
            tracking.indices(["a", "b"], 1.0)
    rows = tracking.indices(["a", "b"], 1.0).values()
    pairs = np.column_stack((c, x)), np.column_stack((m, y))
    assert [row["delay_s"] for row in rows] == delay_samples(*pairs, LONGEST).tolist()


def test_spread_work_takes_two_parts() -> None:
    c, m = motion(CHUNK, 3.0)
    at_once, spread = (fed(c, m, [CHUNK], spread=spread) for spread in (False, True))
    assert not at_once.waits
    parts = 0
    while spread.waits:
        spread.work()
        parts += 1
    assert parts == 2
    spread.work()  # does nothing


def test_pending_chunk_is_not_lost() -> None:
    c, m = motion(3 * CHUNK, 3.0)
    assert fed(c, m, [CHUNK], spread=True).samples() == fed(c, m, [CHUNK]).samples()


@pytest.mark.parametrize("samples", [150, 900, CHUNK + 2 * LONGEST, 10 * CHUNK + 700])
def test_kept_targets_give_identical_delay(samples: int) -> None:
    c, m = motion(samples, 3.0)
    kept = Delay(LONGEST)
    kept.keep()
    kept.extend(c, m)
    other = motion(samples, -12.6)[1] + 1.0
    assert repr(kept.again(other).samples()) == repr(fed(c, other, [1000]).samples())
    assert repr(kept.samples()) == repr(fed(c, m, [samples]).samples())


def test_memory_does_not_grow() -> None:
    c, m = motion(8 * CHUNK, 3.0)
    for spread in (False, True):
        delay, sizes = Delay(LONGEST, spread), []
        for start in range(0, len(c), CHUNK):
            delay.extend(c[start : start + CHUNK], m[start : start + CHUNK])
            while delay.waits:
                delay.work()
            sizes.append(len(pickle.dumps(delay)))
        assert max(sizes) == pytest.approx(sizes[0], abs=8)  # counters of samples grow
