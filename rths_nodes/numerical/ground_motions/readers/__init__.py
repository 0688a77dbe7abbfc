# SPDX-License-Identifier: Apache-2.0
"""Readers of ground-motion files: convert bytes to accelerations, with the file's step and unit.

The content, not the file's name, determines the format. If a file does not follow its format, the error names the
faulty line.
"""

from __future__ import annotations

from rths_nodes.core.text_files import encoding_of
from rths_nodes.numerical.ground_motions.readers import waveforms
from rths_nodes.numerical.ground_motions.readers.columns import read_columns
from rths_nodes.numerical.ground_motions.readers.headed import has_frame, has_start, is_at2, read_at2, read_v2
from rths_nodes.numerical.ground_motions.readers.series import UNITS, FormatError, Series, canonical_unit

__all__ = ["UNITS", "FormatError", "Series", "canonical_unit", "read"]

READ = (
    "Supported formats are PEER AT2, COSMOS, CSMIP V2 and columns of text; K-NET, SAC, miniSEED, SLIST and TSPAIR "
    "require obspy"
)


def read(data: bytes) -> Series:
    """Return the acceleration series in a file's bytes.

    Raises FormatError if the content is faulty or the format is not supported.
    """
    if (name := waveforms.waveform(data)) is not None:
        return waveforms.read_waveform(data, name)
    if (name := waveforms.other(data)) is not None:
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
    if (name := waveforms.in_text(lines)) is not None:
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
