# SPDX-License-Identifier: Apache-2.0
"""Seismological formats, read by obspy if it is installed (``pip install obspy``).

The format selects obspy's reader, because obspy's format detection unpickles files that resemble pickles of obspy.
Values are raw counts unless calibrated: SAC and miniSEED need the parameter ``unit``.
"""

from __future__ import annotations

import re
import struct
import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.numerical.ground_motions.readers.series import FormatError, Series, complete, short, stated_unit

if TYPE_CHECKING:
    from obspy import Trace


SAC_VERSION_AT, SAC_HEADER = 304, 632
"""Position of the header version (a four-byte integer) and length of the SAC header, in bytes."""
FIRST_LINES = 30
"""Number of lines that are searched for the name of the format."""


class Format(NamedTuple):
    """A format: its name in messages, the name of obspy's reader, and a test of the bytes or first lines."""

    name: str
    obspy: str | None
    fits: Callable[[bytes], bool]


def _is_sac(data: bytes) -> bool:
    if len(data) < SAC_HEADER:
        return False
    return any(struct.unpack_from(f"{order}i", data, SAC_VERSION_AT)[0] in (6, 7) for order in "<>")


def _starts(*marks: bytes) -> Callable[[bytes], bool]:
    return lambda data: data.startswith(marks)


def _first_line(pattern: str) -> Callable[[bytes], bool]:
    compiled = re.compile(rf"\s*(?:{pattern})".encode(), re.I)
    return lambda data: compiled.match(data) is not None


WAVEFORMS = (
    Format("miniSEED", "MSEED", lambda data: re.match(rb"\d{6}[DRQM][ \0]|MS\x03", data) is not None),
    Format("SAC", "SAC", _is_sac),
    Format("K-NET or KiK-net", "KNET", _first_line(r"Origin Time")),
    Format("TSPAIR", "TSPAIR", _first_line(r"TIMESERIES [^\r\n]*\bTSPAIR\b")),
    Format("SLIST", "SLIST", _first_line(r"TIMESERIES [^\r\n]*\bSLIST\b")),
)

OTHERS = (
    Format("a ZIP archive or an Excel workbook", None, _starts(b"PK\x03\x04")),
    Format("an old Excel workbook", None, _starts(b"\xd0\xcf\x11\xe0")),
    Format("compressed (gzip)", None, _starts(b"\x1f\x8b")),
    Format("compressed (bzip2)", None, _starts(b"BZh")),
    Format("a MATLAB MAT-file", None, _starts(b"MATLAB 5.0 MAT-file")),
    Format("HDF5 (e.g. a MAT-file 7.3 or ASDF)", None, _starts(b"\x89HDF")),
    Format("a NumPy array", None, _starts(b"\x93NUMPY")),
    Format("PDF", None, _starts(b"%PDF")),
    Format("full SEED", None, lambda data: re.match(rb"\d{6}V ", data) is not None),
    Format("GSE", None, _first_line(r"WID[12] |XW0\d ")),
    Format("an HTML page (was the download refused?)", None, _first_line(r"<!doctype html|<html")),
    Format("XML", None, _first_line(r"<\?xml")),
    Format("JSON", None, _first_line(r"\{\s*\"|\[\s*[\{\[]")),
    Format("K-NET CSV", None, _first_line(r"#K-NET CSV")),
    Format(
        "a USGS SMC file",
        None,
        _first_line(r"\d (?:UNKNOWN|(?:UN)?CORRECTED ACCELEROGRAM|VELOCITY|DISPLACEMENT|RESPONSE|FOURIER)"),
    ),
    Format("RTF", None, _starts(b"{\\rtf")),
)

_IN_TEXT = (
    ("GeoNet V1A or V2A", re.compile(r"GNS Science|Geological (?:and|&) Nuclear|^Raw readings in units of", re.I)),
    ("BHRC V1 (VOL1DS)", re.compile(r"^\* VOL1DS", re.I)),
    ("a response spectrum (CSMIP V3)", re.compile(r"response and fourier amplitude spectra", re.I)),
    (
        "an uncorrected accelerogram (V1) with pairs of time and value",
        re.compile(r"uncorrected accelerogram", re.I),
    ),
)


def waveform(data: bytes) -> Format | None:
    return next((candidate for candidate in WAVEFORMS if candidate.fits(data)), None)


def other(data: bytes) -> str | None:
    return next((candidate.name for candidate in OTHERS if candidate.fits(data)), None)


def in_text(lines: Sequence[str]) -> str | None:
    head = [(name, line, pattern) for line in lines[:FIRST_LINES] for name, pattern in _IN_TEXT]
    return next((name for name, line, pattern in head if pattern.search(line)), None)


LARGEST_OFFSET = 0.1
"""Largest permitted mean of a series, relative to its peak. A larger mean indicates raw values with an offset."""
SAME_PEAK, ROUNDED_PEAK = 0.01, 1e-5
"""Permitted difference from the peak in the header: a fraction of this peak, plus its rounding (m/s^2)."""

_SAC_QUANTITIES = {6: "displacement", 7: "velocity", 50: "volts"}
_SAMPLES = re.compile(rb",\s*(\d+) samples", re.I)


def read_waveform(data: bytes, waveform_format: Format) -> Series:
    try:
        return _series(data, waveform_format)
    except FormatError:
        raise
    except Exception as error:  # obspy's readers can raise any exception and omit headers of damaged files
        cause = " ".join(str(error).split()) or type(error).__name__
        raise FormatError(f"the file is {waveform_format.name}, but obspy cannot read it ({cause})") from None


def _series(data: bytes, waveform_format: Format) -> Series:
    trace = _trace(data, waveform_format)
    step = short(float(trace.stats.delta))
    if waveform_format.obspy == "KNET":
        return Series(_knet(trace), step, "m/s^2")
    values = np.array(trace.data, dtype=float)
    if waveform_format.obspy in ("SLIST", "TSPAIR"):
        unit: str | None = _ascii_unit(trace, data)
    else:
        unit = None
        _check_quantity(trace)
    if trace.stats.calib != 1.0:
        raise FormatError(
            f"the file states a calibration factor of {trace.stats.calib:g} without a unit; use calibrated values"
        )
    _check_values(values)
    return Series(values, step, unit)


def _trace(data: bytes, waveform_format: Format) -> Trace:
    try:
        import obspy
    except ImportError:
        raise FormatError(
            f"the file is {waveform_format.name}, which requires obspy; install obspy with pip install obspy"
        ) from None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream = obspy.read(BytesIO(data), format=waveform_format.obspy)
    for warning in caught:
        if not issubclass(warning.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
            raise FormatError(f"the file is {waveform_format.name}, and obspy reports a fault ({warning.message})")
    if len(stream) != 1:
        names = "; ".join(f"{trace.id} from {trace.stats.starttime}" for trace in stream[:6])
        raise FormatError(f"the file has {len(stream)} series or parts of a series ({names}), but must have one")
    return stream[0]


def _knet(trace: Trace) -> Array:
    """Return accelerations in m/s^2. The mean is subtracted to remove the recorder's offset."""
    stats = trace.stats
    expected = round(stats.knet.duration * stats.sampling_rate)
    if len(trace.data) != expected:
        raise FormatError(
            f"the header states {stats.knet.duration:g} s at {stats.sampling_rate:g} Hz, i.e. {expected} points, "
            f"but the file has {len(trace.data)}; check for missing points"
        )
    values = np.array(trace.data, dtype=float) * stats.calib
    _check_finite(values)
    centred: Array = values - values.mean()
    peak, stated = float(np.abs(centred).max()), 0.01 * stats.knet.accmax
    if abs(peak - stated) > SAME_PEAK * stated + ROUNDED_PEAK:
        raise FormatError(
            f"the header states a peak of {stated:.4g} m/s^2, but the peak of the scaled values is {peak:.4g} "
            "m/s^2"
        )
    return centred


def _ascii_unit(trace: Trace, data: bytes) -> str:
    stated = _SAMPLES.search(data)
    if stated:
        complete(trace.data.tolist(), int(stated[1]))
    return stated_unit(str(trace.stats.ascii.unit))


def _check_quantity(trace: Trace) -> None:
    quantity = _SAC_QUANTITIES.get(int(trace.stats.sac.get("idep", 0))) if "sac" in trace.stats else None
    if quantity is None and re.fullmatch(r"[A-Z]H[A-Z0-9]", trace.stats.channel):
        quantity = f"velocity (channel {trace.stats.channel}, a seismometer)"
    if quantity is not None:
        raise FormatError(f"the series must be acceleration, but is {quantity}")


def _check_values(values: Array) -> None:
    _check_finite(values)
    mean, peak = float(values.mean()), float(np.abs(values).max())
    if abs(mean) > LARGEST_OFFSET * peak:
        raise FormatError(
            f"the mean {mean:.4g} of the series is {100.0 * abs(mean) / peak:.0f} % of the peak {peak:.4g}; "
            "subtract the offset of the recorder"
        )


def _check_finite(values: Array) -> None:
    if not (len(values) and np.isfinite(values).all()):
        raise FormatError("the series is empty, or has a value that is not finite")
