# SPDX-License-Identifier: Apache-2.0
"""Formats of seismology, read by obspy if installed (``pip install obspy``).

The reader is named explicitly: when guessing, obspy would unpickle a file that resembles its own. Results are
counts unless calibrated: K-NET and KiK-net state a scale factor, SLIST and TSPAIR a unit; SAC and miniSEED need
``unit``.
"""

from __future__ import annotations

import re
import warnings
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.numerical.ground_motions.readers.foreign import Format
from rths_nodes.numerical.ground_motions.readers.series import FormatError, Series, complete, short, stated_unit

if TYPE_CHECKING:
    from obspy import Trace

LARGEST_OFFSET = 0.1
"""Largest mean of a series relative to its peaks: raw values may have an offset."""
SAME_PEAK, ROUNDED_PEAK = 0.01, 1e-5
"""Largest difference to the peak in the header: relative, and by its three decimals, m/s^2."""

_SAC_QUANTITIES = {6: "displacement", 7: "velocity", 50: "volts"}
_SAMPLES = re.compile(rb",\s*(\d+) samples", re.I)


def read_waveform(data: bytes, known: Format) -> Series:
    """Return the only series of ``data``. Raises FormatError for several, another quantity, or obspy's failure."""
    trace = _trace(data, known)
    step = short(float(trace.stats.delta))
    if known.obspy == "KNET":
        return Series(_knet(trace), step, "m/s^2")
    values = np.array(trace.data, dtype=float)
    if known.obspy in ("SLIST", "TSPAIR"):
        unit: str | None = _ascii_unit(trace, data)
    else:
        unit = None
        _check_quantity(trace)
    if trace.stats.calib != 1.0:
        raise FormatError(f"states a calibration of {trace.stats.calib:g} without a unit: write calibrated values")
    _check_values(values)
    return Series(values, step, unit)


def _trace(data: bytes, known: Format) -> Trace:
    try:
        import obspy
    except ImportError:
        raise FormatError(f"is {known.name}, which obspy reads; it is not installed: pip install obspy") from None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            stream = obspy.read(BytesIO(data), format=known.obspy)
        except Exception as error:  # readers of obspy raise any exception
            words = str(error) or type(error).__name__
            raise FormatError(f"is {known.name}, which obspy cannot read: {words}") from None
    for warning in told:
        if not issubclass(warning.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
            raise FormatError(f"is {known.name}, of which obspy says: {warning.message}")
    if len(stream) != 1:
        names = "; ".join(f"{trace.id} from {trace.stats.starttime}" for trace in stream[:6])
        raise FormatError(f"holds {len(stream)} series or parts of one ({names}), must be one")
    return stream[0]


def _knet(trace: Trace) -> Array:
    """Return accelerations in m/s^2 about their mean, to remove the recorder's offset."""
    stats = trace.stats
    expected = round(stats.knet.duration * stats.sampling_rate)
    if len(trace.data) != expected:
        raise FormatError(
            f"its header states {stats.knet.duration:g} s at {stats.sampling_rate:g} Hz, {expected} points, it "
            f"holds {len(trace.data)}: cut off or edited?"
        )
    values = np.array(trace.data, dtype=float) * stats.calib
    _check_finite(values)
    centred: Array = values - values.mean()
    peak, stated = float(np.abs(centred).max()), 0.01 * stats.knet.accmax
    if abs(peak - stated) > SAME_PEAK * stated + ROUNDED_PEAK:
        raise FormatError(
            f"its header states a peak of {stated:.4g} m/s^2, its values have {peak:.4g} m/s^2 by the scale factor"
        )
    return centred


def _ascii_unit(trace: Trace, data: bytes) -> str:
    """Return the unit in the header of SLIST or TSPAIR; check its number of samples."""
    stated = _SAMPLES.search(data)
    if stated:
        complete(trace.data.tolist(), int(stated[1]))
    return stated_unit(str(trace.stats.ascii.unit))


def _check_quantity(trace: Trace) -> None:
    """Refuse a velocity or a displacement, by the header of SAC or by the code of the channel (SEED)."""
    quantity = _SAC_QUANTITIES.get(int(trace.stats.sac.get("idep", 0))) if "sac" in trace.stats else None
    if quantity is None and re.fullmatch(r"[A-Z]H[A-Z0-9]", trace.stats.channel):
        quantity = f"velocity (channel {trace.stats.channel}, a seismometer)"
    if quantity is not None:
        raise FormatError(f"holds a {quantity} series, must be acceleration")


def _check_values(values: Array) -> None:
    _check_finite(values)
    mean, peak = float(values.mean()), float(np.abs(values).max())
    if abs(mean) > LARGEST_OFFSET * peak:
        raise FormatError(
            f"its mean {mean:.4g} is {100.0 * abs(mean) / peak:.0f} % of its peak {peak:.4g}: raw values beside "
            "zero? Take the mean out"
        )


def _check_finite(values: Array) -> None:
    if not (len(values) and np.isfinite(values).all()):
        raise FormatError("holds no value, or one that is not finite")
