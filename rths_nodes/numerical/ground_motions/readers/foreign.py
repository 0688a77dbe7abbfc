# SPDX-License-Identifier: Apache-2.0
"""Recognised formats that are not read here: a refusal names them.

A row says so if ``obspy`` has a reader (``waveforms.py``).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

SAC_VERSION_AT, SAC_HEADER = 304, 632
"""Byte of the header version, a four-byte integer, and length of the header of SAC."""
FIRST_LINES = 30
"""Lines of a text searched for the name of its format."""


class Format(NamedTuple):
    """A format: its name for messages, the name of obspy's reader, a test of its bytes or first lines."""

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
    known = re.compile(rf"\s*(?:{pattern})".encode(), re.I)
    return lambda data: known.match(data) is not None


WAVEFORMS = (
    Format("miniSEED", "MSEED", lambda data: re.match(rb"\d{6}[DRQM][ \0]|MS\x03", data) is not None),
    Format("SAC", "SAC", _is_sac),
    Format("K-NET or KiK-net", "KNET", _first_line(r"Origin Time")),
    Format("TSPAIR", "TSPAIR", _first_line(r"TIMESERIES [^\r\n]*\bTSPAIR\b")),
    Format("SLIST", "SLIST", _first_line(r"TIMESERIES [^\r\n]*\bSLIST\b")),
)
"""Read by obspy if installed."""

OTHERS = (
    Format("a ZIP archive or an Excel workbook", None, _starts(b"PK\x03\x04")),
    Format("an old Excel workbook", None, _starts(b"\xd0\xcf\x11\xe0")),
    Format("compressed (gzip)", None, _starts(b"\x1f\x8b")),
    Format("compressed (bzip2)", None, _starts(b"BZh")),
    Format("a MAT-file of MATLAB", None, _starts(b"MATLAB 5.0 MAT-file")),
    Format("HDF5, a MAT-file 7.3 or ASDF", None, _starts(b"\x89HDF")),
    Format("an array of numpy", None, _starts(b"\x93NUMPY")),
    Format("PDF", None, _starts(b"%PDF")),
    Format("full SEED", None, lambda data: re.match(rb"\d{6}V ", data) is not None),
    Format("GSE", None, _first_line(r"WID[12] |XW0\d ")),
    Format("a page of HTML: was the download refused?", None, _first_line(r"<!doctype html|<html")),
    Format("XML", None, _first_line(r"<\?xml")),
    Format("JSON", None, _first_line(r"\{\s*\"|\[\s*[\{\[]")),
    Format("K-NET CSV", None, _first_line(r"#K-NET CSV")),
    Format(
        "SMC of the USGS",
        None,
        _first_line(r"\d (?:UNKNOWN|(?:UN)?CORRECTED ACCELEROGRAM|VELOCITY|DISPLACEMENT|RESPONSE|FOURIER)"),
    ),
    Format("RTF", None, _starts(b"{\\rtf")),
)

_IN_TEXT = (
    ("GeoNet V1A or V2A", re.compile(r"GNS Science|Geological (?:and|&) Nuclear|^Raw readings in units of", re.I)),
    ("BHRC V1 (VOL1DS)", re.compile(r"^\* VOL1DS", re.I)),
    ("a response spectrum (CSMIP V3)", re.compile(r"response and fourier amplitude spectra", re.I)),
    ("an uncorrected accelerogram (V1), pairs of time and value", re.compile(r"uncorrected accelerogram", re.I)),
)


def waveform(data: bytes) -> Format | None:
    """Return the format if obspy reads it, else None."""
    return next((known for known in WAVEFORMS if known.fits(data)), None)


def other(data: bytes) -> str | None:
    """Return the name of another known format of bytes or text, or None."""
    return next((known.name for known in OTHERS if known.fits(data)), None)


def in_text(lines: Sequence[str]) -> str | None:
    """Return the name of a strong-motion format in the first lines of its header, or None."""
    head = [(name, line, known) for line in lines[:FIRST_LINES] for name, known in _IN_TEXT]
    return next((name for name, line, known in head if known.search(line)), None)
