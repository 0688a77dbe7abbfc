# SPDX-License-Identifier: Apache-2.0
"""Readers of ground-motion files: convert bytes to accelerations, with the file's step and unit.

The content, not the file's name, determines the format. If a file does not follow its format, the error names the
faulty line.

Seismological formats are read by obspy if it is installed (``pip install obspy``). The format selects obspy's
reader, because obspy's format detection unpickles files that resemble pickles of obspy. Values are raw counts
unless calibrated: SAC and miniSEED need the parameter ``unit``.
"""

from __future__ import annotations

import re
import warnings
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from rths_nodes.core.samples import Array
from rths_nodes.core.text_files import encoding_of
from rths_nodes.numerical.ground_motions.readers.columns import (
    UNITS,
    FormatError,
    Series,
    canonical_unit,
    complete,
    read_columns,
    short,
    stated_unit,
)
from rths_nodes.numerical.ground_motions.readers.headed import has_frame, has_start, is_at2, read_at2, read_v2

if TYPE_CHECKING:
    from obspy import Trace

__all__ = ["UNITS", "FormatError", "Series", "canonical_unit", "read"]

READ = (
    "Supported formats are PEER AT2, COSMOS, CSMIP V2 and columns of text; K-NET, SAC, miniSEED, SLIST and TSPAIR "
    "require obspy"
)
FIRST_LINES = 30
"""Number of lines that are searched for the name of the format."""

WAVEFORMS = {
    "miniSEED": ("MSEED", rb"\d{6}[DRQM][ \0]|MS\x03"),
    # the header of 632 bytes has its version, a four-byte integer, at byte 304
    "SAC": ("SAC", rb"(?s)(?=.{632}).{304}(?:[\x06\x07]\0\0\0|\0\0\0[\x06\x07])"),
    "K-NET or KiK-net": ("KNET", rb"(?i)\s*Origin Time"),
    "TSPAIR": ("TSPAIR", rb"(?i)\s*TIMESERIES [^\r\n]*\bTSPAIR\b"),
    "SLIST": ("SLIST", rb"(?i)\s*TIMESERIES [^\r\n]*\bSLIST\b"),
}
"""Format -> name of obspy's reader, and pattern of the first bytes."""

OTHERS = {
    "a ZIP archive or an Excel workbook": rb"PK\x03\x04",
    "an old Excel workbook": rb"\xd0\xcf\x11\xe0",
    "compressed (gzip)": rb"\x1f\x8b",
    "compressed (bzip2)": rb"BZh",
    "a MATLAB MAT-file": rb"MATLAB 5\.0 MAT-file",
    "HDF5 (e.g. a MAT-file 7.3 or ASDF)": rb"\x89HDF",
    "a NumPy array": rb"\x93NUMPY",
    "PDF": rb"%PDF",
    "full SEED": rb"\d{6}V ",
    "GSE": rb"(?i)\s*(?:WID[12] |XW0\d )",
    "an HTML page (was the download refused?)": rb"(?i)\s*(?:<!doctype html|<html)",
    "XML": rb"(?i)\s*<\?xml",
    "JSON": rb"\s*(?:\{\s*\"|\[\s*[\{\[])",
    "K-NET CSV": rb"(?i)\s*#K-NET CSV",
    "a USGS SMC file": (
        rb"(?i)\s*\d (?:UNKNOWN|(?:UN)?CORRECTED ACCELEROGRAM|VELOCITY|DISPLACEMENT|RESPONSE|FOURIER)"
    ),
    "RTF": rb"\{\\rtf",
}
"""Unsupported format -> pattern of the first bytes."""

IN_TEXT = {
    "GeoNet V1A or V2A": r"(?i)GNS Science|Geological (?:and|&) Nuclear|^Raw readings in units of",
    "BHRC V1 (VOL1DS)": r"(?i)^\* VOL1DS",
    "a response spectrum (CSMIP V3)": r"(?i)response and fourier amplitude spectra",
    "an uncorrected accelerogram (V1) with pairs of time and value": r"(?i)uncorrected accelerogram",
}
"""Unsupported format -> pattern in one of the first lines."""
LARGEST_OFFSET = 0.1
"""Largest permitted mean of a series, relative to its peak. A larger mean indicates raw values with an offset."""
SAME_PEAK, ROUNDED_PEAK = 0.01, 1e-5
"""Permitted difference from the header's peak: ``SAME_PEAK`` times this peak, plus ``ROUNDED_PEAK`` (m/s^2)."""

_SAC_QUANTITIES = {6: "displacement", 7: "velocity", 50: "volts"}
_SAMPLES = re.compile(rb",\s*(\d+) samples", re.I)


def read(data: bytes) -> Series:
    """Return the acceleration series in a file's bytes.

    Raises FormatError if the content is faulty or the format is not supported.
    """
    for name, (_, pattern) in WAVEFORMS.items():
        if re.match(pattern, data):
            return _read_waveform(data, name)
    for name, pattern in OTHERS.items():
        if re.match(pattern, data):
            raise _unread(name)
    return _read_text(_text(data))


def _read_text(text: str) -> Series:
    if not text.strip():
        raise FormatError("the file is empty")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if is_at2(lines):
        return read_at2(lines)
    if has_start(lines):
        return read_v2(lines)
    for line in lines[:FIRST_LINES]:
        for name, pattern in IN_TEXT.items():
            if re.search(pattern, line):
                raise _unread(name)
    return read_v2(lines) if has_frame(lines) else read_columns(lines)


def _text(data: bytes) -> str:
    encoding = encoding_of(data)
    if encoding != "utf-16" and b"\0" in data:
        end = data.index(b"\0")
        raise FormatError(
            f"the file is not plain text, because it contains zero bytes ({data.count(0)}, the first in line "
            f"{data.count(10, 0, end) + 1}). {READ}"
        )
    text = data.decode(encoding, errors="replace")  # station names in headers can have any encoding
    return text.rstrip().removesuffix("\x1a")


def _unread(name: str) -> FormatError:
    return FormatError(f"the file is {name}, which is not supported. {READ}")


def _read_waveform(data: bytes, name: str) -> Series:
    try:
        trace = _trace(data, name)
        values = np.array(trace.data, dtype=float) * trace.stats.calib
        if not (len(values) and np.isfinite(values).all()):
            raise FormatError("the series is empty, or has a value that is not finite")
        step = short(float(trace.stats.delta))
        if name == "K-NET or KiK-net":
            return Series(_knet(trace, values), step, "m/s^2")
        unit = _unit(trace, data)
        _check_offset(values)
        return Series(values, step, unit)
    except FormatError:
        raise
    except Exception as error:  # obspy's readers can raise any exception and omit headers of damaged files
        cause = " ".join(str(error).split()) or type(error).__name__
        raise FormatError(f"the file is {name}, but obspy cannot read it ({cause})") from None


def _trace(data: bytes, name: str) -> Trace:
    try:
        import obspy
    except ImportError:
        raise FormatError(
            f"the file is {name}, which requires obspy; install obspy with pip install obspy"
        ) from None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream = obspy.read(BytesIO(data), format=WAVEFORMS[name][0])
    for warning in caught:
        if not issubclass(warning.category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning)):
            raise FormatError(f"the file is {name}, and obspy reports a fault ({warning.message})")
    if len(stream) != 1:
        names = "; ".join(f"{trace.id} from {trace.stats.starttime}" for trace in stream[:6])
        raise FormatError(f"the file has {len(stream)} series or parts of a series ({names}), but must have one")
    return stream[0]


def _knet(trace: Trace, values: Array) -> Array:
    """Return accelerations in m/s^2. The mean is subtracted to remove the recorder's offset."""
    stats = trace.stats
    expected = round(stats.knet.duration * stats.sampling_rate)
    if len(values) != expected:
        raise FormatError(
            f"the header states {stats.knet.duration:g} s at {stats.sampling_rate:g} Hz, i.e. {expected} points, "
            f"but the file has {len(values)}; check for missing points"
        )
    centred: Array = values - values.mean()
    peak, stated = float(np.abs(centred).max()), 0.01 * stats.knet.accmax
    if abs(peak - stated) > SAME_PEAK * stated + ROUNDED_PEAK:
        raise FormatError(
            f"the header states a peak of {stated:.4g} m/s^2, but the peak of the scaled values is {peak:.4g} "
            "m/s^2"
        )
    return centred


def _unit(trace: Trace, data: bytes) -> str | None:
    """Return the unit of calibrated accelerations, or None; only SLIST and TSPAIR state the unit."""
    stats, unit = trace.stats, None
    if "ascii" in stats:
        if stated := _SAMPLES.search(data):
            complete(trace.data, int(stated[1]))
        unit = stated_unit(str(stats.ascii.unit))
    else:
        quantity = _SAC_QUANTITIES.get(int(stats.sac.get("idep", 0))) if "sac" in stats else None
        if quantity is None and re.fullmatch(r"[A-Z]H[A-Z0-9]", stats.channel):
            quantity = f"velocity (channel {stats.channel}, a seismometer)"
        if quantity is not None:
            raise FormatError(f"the series must be acceleration, but is {quantity}")
    if stats.calib != 1.0:
        raise FormatError(
            f"the file states a calibration factor of {stats.calib:g} without a unit; use calibrated values"
        )
    return unit


def _check_offset(values: Array) -> None:
    mean, peak = float(values.mean()), float(np.abs(values).max())
    if abs(mean) > LARGEST_OFFSET * peak:
        raise FormatError(
            f"the mean {mean:.4g} of the series is {100.0 * abs(mean) / peak:.0f} % of the peak {peak:.4g}; "
            "subtract the offset of the recorder"
        )
