# SPDX-License-Identifier: Apache-2.0
"""Readers of ground-motion files: from bytes to accelerations, with the file's step and unit.

The format is recognised by content, never by the file's name, before parsing: the file is then read as that
format, or refused with the faulty line. PEER AT2 (``at2.py``), COSMOS V1/V2 and CSMIP V2 (``v2.py``) and columns
of text (``columns.py``) are read here, K-NET, KiK-net, SAC, miniSEED, SLIST and TSPAIR by obspy
(``waveforms.py``); some others are named in the refusal (``foreign.py``).
"""

from __future__ import annotations

import codecs

from rths_nodes.numerical.ground_motions.readers import foreign
from rths_nodes.numerical.ground_motions.readers.at2 import is_at2, read_at2
from rths_nodes.numerical.ground_motions.readers.columns import read_columns
from rths_nodes.numerical.ground_motions.readers.series import UNITS, FormatError, Series, canonical_unit
from rths_nodes.numerical.ground_motions.readers.v2 import has_frame, has_start, read_v2
from rths_nodes.numerical.ground_motions.readers.waveforms import read_waveform

__all__ = ["UNITS", "FormatError", "Series", "canonical_unit", "read"]

READ = "PEER AT2, COSMOS, CSMIP V2 and columns of text are read, K-NET, SAC, miniSEED, SLIST and TSPAIR by obspy"
"""Formats, for messages."""


def read(data: bytes) -> Series:
    """Return the acceleration series in a file's bytes. Raises FormatError with the line or the format."""
    known = foreign.waveform(data)
    if known is not None:
        return read_waveform(data, known)
    name = foreign.other(data)
    if name is not None:
        raise _unread(name)
    return _read_text(_text(data))


def _read_text(text: str) -> Series:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not text.strip():
        raise FormatError("is empty")
    if is_at2(lines):
        return read_at2(lines)
    if has_start(lines):
        return read_v2(lines)
    name = foreign.in_text(lines)
    if name is not None:
        raise _unread(name)
    return read_v2(lines) if has_frame(lines) else read_columns(lines)


def _text(data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data:
        place = data.index(b"\0")
        raise FormatError(
            f"is not plain text: it holds {data.count(0)} zero bytes, the first in line "
            f"{data.count(10, 0, place) + 1}; {READ}"
        )
    text = data.decode("utf-8-sig", errors="replace")  # station names in headers come in any encoding
    return text.rstrip().removesuffix("\x1a")


def _unread(name: str) -> FormatError:
    return FormatError(f"is {name}, which is not read; {READ}")
