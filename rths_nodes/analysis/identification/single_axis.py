# SPDX-License-Identifier: Apache-2.0
"""Identification of a loading system from a recording: delay, amplitude and models for the compensators.

Pure functions on whole histories, for use before or after a test, never inside the loop. Target and measured
displacement are taken at the same instants; both of shape ``(n,)`` and in the same unit (the results do not
depend on which). A measured displacement that comes late has a positive delay.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rths_nodes.core.rounding import ROUNDING
from rths_nodes.core.samples import Array

MODEL_TAPS = 3
"""Parameters of the discrete model of Wang et al., Eq. (3)."""


class SineFit(NamedTuple):
    """Response of a system to a sine: ``delay`` (s) and ``amplitude_ratio`` (measured over target)."""

    delay: float
    amplitude_ratio: float


def sine_of(history: Array, dt: float, frequency: float) -> complex:
    """The complex amplitude a of ``history`` ~ Re(a exp(2 pi j frequency t)) + mean, by least squares.

    Sine, cosine and a constant are fitted together, so a record that does not end after whole periods, or one
    with an offset, gives no error. Raises ValueError for too few samples.
    """
    _refuse_unless(frequency > 0.0 and dt > 0.0, f"frequency = {frequency:g} Hz, dt = {dt:g} s: must be > 0")
    _refuse_unless(
        history.ndim == 1 and len(history) >= MODEL_TAPS, f"{history.shape}: must be three samples or more"
    )
    phase = 2.0 * math.pi * frequency * dt * np.arange(len(history))
    waves = np.column_stack((np.cos(phase), np.sin(phase), np.ones_like(phase)))
    cosine, sine, _ = np.linalg.lstsq(waves, history, rcond=None)[0]
    return complex(cosine, -sine)


def delay_of_sine(target: Array, measured: Array, dt: float, frequency: float) -> SineFit:
    """Delay (s) and amplitude ratio of ``measured`` behind a sine of ``frequency`` (Hz) in ``target``.

    The delay is known up to whole periods only and is given within plus and minus half a period. Leave out the
    beginning of a test: the fit takes the transient for a part of the sine. Raises ValueError for histories of
    different or too small length and for a target without that sine.
    """
    _refuse_unless(target.shape == measured.shape, f"shapes {target.shape} and {measured.shape}: must be equal")
    wanted, found = sine_of(target, dt, frequency), sine_of(measured, dt, frequency)
    least = ROUNDING * float(np.abs(target).max())
    _refuse_unless(abs(wanted) > least, f"target: has no sine of {frequency:g} Hz")
    answer = found / wanted
    return SineFit(-float(np.angle(answer)) / (2.0 * math.pi * frequency), abs(answer))


def first_order_alpha(delay: float, dt: float) -> float:
    """The delay constant alpha (samples) of the inverse compensation for a delay in s.

    The simplified actuator of Chen & Ricles 2010, Eq. (3), is alpha - 1 samples late on a slow motion: alpha = 1
    is no delay. Raises ValueError for a negative delay, for which there is no such alpha.
    """
    _refuse_unless(delay >= 0.0 and dt > 0.0, f"delay = {delay:g} s, dt = {dt:g} s: must be >= 0 and > 0")
    return 1.0 + delay / dt


def discrete_model(command: Array, measured: Array, spacing: int) -> Array:
    """theta ``(3,)`` of command(j) = theta . [measured(j), measured(j - s), measured(j - 2 s)], least squares.

    Wang et al. (TADC), Eq. (3), over the whole history with equal weights: the ``initial`` of the compensator
    ``discrete_model``. ``command`` is what went into the loading system (behind a second stage: what went into
    that one); of a test without compensation that is the target. Raises ValueError for histories that are too
    short or of different length, and for a motion too poor to tell the parameters apart (rest; one slow sine).
    """
    _refuse_unless(command.shape == measured.shape, f"shapes {command.shape} and {measured.shape}: must be equal")
    _refuse_unless(spacing >= 1, f"spacing = {spacing}: must be >= 1 samples")
    first = (MODEL_TAPS - 1) * spacing
    rows = len(measured) - first
    _refuse_unless(rows >= MODEL_TAPS, f"{len(measured)} samples: must be >= {first + MODEL_TAPS}")
    taps = np.column_stack([measured[first - tap * spacing :][:rows] for tap in range(MODEL_TAPS)])
    theta, _, rank, _ = np.linalg.lstsq(taps, command[first:], rcond=None)
    _refuse_unless(int(rank) == MODEL_TAPS, "measured: its motion is too poor to tell three parameters apart")
    return np.asarray(theta, dtype=np.float64)


def _refuse_unless(fine: bool, message: str) -> None:
    if not fine:
        raise ValueError(message)
