# SPDX-License-Identifier: Apache-2.0
"""The delay index in chunks: the definition written out, offsets, chunks and how the samples come, memory."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from rths_nodes.loop.indices.delay import CHUNK, Delay, delay_samples
from rths_nodes.loop.indices.tracking import Tracking

LONGEST = 100


def by_definition(target: np.ndarray, measured: np.ndarray, longest: int) -> float:
    """Pearson's coefficient at each lag over the same measurements, and a parabola; in long double."""
    c, m = (values.astype(np.longdouble) for values in (target, measured))
    n = len(c) - 2 * longest
    middle = m[longest : longest + n] - m[longest : longest + n].mean()
    found = []
    for lag in range(2 * longest + 1):
        beside = c[lag : lag + n] - c[lag : lag + n].mean()
        found.append((beside * middle).sum() / np.sqrt((beside**2).sum() * (middle**2).sum()))
    best = int(np.argmax(found))
    left, top, right = found[best - 1 : best + 2]
    return float(longest - (best + 0.5 * (left - right) / (left - 2.0 * top + right)))


def motion(samples: int, lag: float) -> tuple[np.ndarray, np.ndarray]:
    """1 mm of something like an earthquake, and the same late by ``lag`` samples, with a little noise; m."""
    time = np.arange(float(samples))
    waves = ((0.7, 0.1), (1.9, 2.0), (4.3, 4.0))

    def wave(at: np.ndarray) -> np.ndarray:
        return 1e-3 * sum(np.sin(2.0 * np.pi * f / 1024.0 * at + p) / f for f, p in waves)

    noise = np.random.default_rng(11).normal(size=samples)
    return wave(time), wave(time - lag) + 1e-6 * noise


def fed(c: np.ndarray, m: np.ndarray, sizes: list[int], spread: bool = False, asked: bool = False) -> Delay:
    """The delay of samples that come in parts of these sizes, in turn; ``asked`` after each of them."""
    delay, done, turn = Delay(LONGEST, spread), 0, 0
    while done < len(c):
        end = done + sizes[turn % len(sizes)]
        delay.extend(c[done:end], m[done:end])
        if asked:
            delay.samples()
        done, turn = end, turn + 1
    return delay


@pytest.mark.parametrize("samples", [5 * LONGEST, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 700])
@pytest.mark.parametrize("lag", [12.6, -3.2])
def test_it_is_pearsons_coefficient_at_each_lag(samples: int, lag: float) -> None:
    c, m = motion(samples, lag)
    found = delay_samples(c[:, None], m[:, None], LONGEST)[0]
    assert found == pytest.approx(by_definition(c, m, LONGEST), rel=1e-9)


@pytest.mark.parametrize("offset", [0.1, -25.0])
def test_an_offset_costs_no_digits(offset: float) -> None:
    """1 mm of motion on 100 mm. Where the offset itself has taken digits of the motion, only those are missing."""
    c, m = motion(2 * CHUNK + 100, 12.6)
    found = delay_samples(c[:, None] + offset, m[:, None] - 2.0 * offset, LONGEST)[0]
    assert found == pytest.approx(by_definition(c + offset, m - 2.0 * offset, LONGEST), rel=1e-9)
    assert found == pytest.approx(by_definition(c, m, LONGEST), rel=1e-8)


def test_an_offset_that_comes_later_counts_as_it_should() -> None:
    """The first values are not those about which the others move."""
    c, m = motion(3 * CHUNK, 12.6)
    c[CHUNK + 50 :] += 0.1
    m[CHUNK + 63 :] += 0.1
    found = delay_samples(c[:, None], m[:, None], LONGEST)[0]
    assert found == pytest.approx(by_definition(c, m, LONGEST), rel=1e-9)


@pytest.mark.parametrize(("drift", "digits"), [(0.01, 1e-10), (0.1, 1e-8)])
def test_a_drift_costs_the_digits_of_its_square_over_the_motions(drift: float, digits: float) -> None:
    """1 mm of motion after a ramp of 10 mm or 100 mm in 50 samples."""
    c, m = motion(12 * CHUNK, 12.6)
    c, m = (
        values + drift * np.clip((np.arange(len(c)) - late) / 50.0, 0.0, 1.0)
        for values, late in ((c, 0.0), (m, 12.6))
    )
    found = delay_samples(c[:, None], m[:, None], LONGEST)[0]
    assert found == pytest.approx(by_definition(c, m, LONGEST), rel=digits)


@pytest.mark.parametrize("longest", [CHUNK // 2 + 7, CHUNK + 100])
def test_lags_may_be_longer_than_a_chunk(longest: int) -> None:
    c, m = motion(3 * longest + CHUNK, 12.6)
    found = delay_samples(c[:, None], m[:, None], longest)[0]
    assert found == pytest.approx(by_definition(c, m, longest), rel=1e-8)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0 / 3.0, 1e-30])
def test_what_does_not_move_has_no_delay(value: float) -> None:
    """0.1 is no exact number: its mean over a chunk is, of differences."""
    c, m = motion(2 * CHUNK + 700, 3.0)
    still = np.full_like(c, value)
    for pair in ((still, m), (c, still), (still, still)):
        assert math.isnan(delay_samples(*(values[:, None] for values in pair), LONGEST)[0])


def test_a_target_that_jumps_once_at_the_end_of_the_record_has_no_delay() -> None:
    """At some of the lags it does not move: what is left of its squares there is rounding."""
    c, m = motion(2 * CHUNK, 3.0)
    step = np.full_like(c, 0.1)
    step[:30] = 0.3
    assert math.isnan(delay_samples(step[:, None], m[:, None], LONGEST)[0])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_leaves_no_delay_and_no_warning(value: float) -> None:
    for place in (LONGEST, CHUNK + 5, 2 * CHUNK + 5):
        c, m = motion(2 * CHUNK + 700, 3.0)
        m[place] = value
        assert math.isnan(delay_samples(c[:, None], m[:, None], LONGEST)[0])


@pytest.mark.parametrize("sizes", [[1], [7, 1, 640], [CHUNK], [CHUNK - 1, 3], [3 * CHUNK + 5]])
def test_the_bits_do_not_depend_on_how_the_samples_come(sizes: list[int]) -> None:
    c, m = motion(3 * CHUNK + 700, 12.6)
    whole = fed(c, m, [len(c)]).samples()
    assert fed(c, m, sizes).samples() == whole
    assert fed(c, m, sizes, spread=True).samples() == whole
    assert fed(c, m, [max(size, 300) for size in sizes], asked=True).samples() == whole


def test_it_is_the_same_sample_by_sample_beside_other_axes() -> None:
    (c, m), (x, y) = motion(2 * CHUNK + 30, 12.6), motion(2 * CHUNK + 30, -4.0)
    tracking = Tracking(2, LONGEST)
    for sample in range(len(c)):
        tracking.step(sample, [c[sample], x[sample]], [m[sample], y[sample]], [0.0, 0.0])
        if sample in (10, CHUNK + 900):
            tracking.indices(["a", "b"], 1.0)
    found = tracking.indices(["a", "b"], 1.0)
    pairs = np.column_stack((c, x)), np.column_stack((m, y))
    assert [row["delay_s"] for row in found.values()] == delay_samples(*pairs, LONGEST).tolist()


def test_a_chunk_is_worked_in_part_by_part_where_that_is_asked_for() -> None:
    c, m = motion(CHUNK, 3.0)
    at_once, spread = (fed(c, m, [CHUNK], spread=each) for each in (False, True))
    assert not at_once.waits
    parts = 0
    while spread.waits:
        spread.work()
        parts += 1
    assert parts == 2
    spread.work()  # nothing is left to do


def test_a_chunk_that_nobody_worked_in_is_not_lost() -> None:
    c, m = motion(3 * CHUNK, 3.0)
    assert fed(c, m, [CHUNK], spread=True).samples() == fed(c, m, [CHUNK]).samples()


@pytest.mark.parametrize("samples", [150, 900, CHUNK + 2 * LONGEST, 10 * CHUNK + 700])
def test_another_measurement_of_kept_targets_has_the_same_delay_to_the_bit(samples: int) -> None:
    c, m = motion(samples, 3.0)
    kept = Delay(LONGEST)
    kept.keep()
    kept.extend(c, m)
    _, other = motion(samples, -12.6)
    found, alone = kept.again(other + 1.0).samples(), fed(c, other + 1.0, [1000]).samples()
    assert repr(found) == repr(alone)
    assert repr(kept.samples()) == repr(fed(c, m, [samples]).samples())


def test_its_memory_does_not_grow() -> None:
    c, m = motion(8 * CHUNK, 3.0)
    for spread in (False, True):
        delay, sizes = Delay(LONGEST, spread), []
        for start in range(0, len(c), CHUNK):
            delay.extend(c[start : start + CHUNK], m[start : start + CHUNK])
            while delay.waits:
                delay.work()
            sizes.append(len(pickle.dumps(delay)))
        assert max(sizes) == pytest.approx(sizes[0], abs=8)  # of the numbers that count samples
