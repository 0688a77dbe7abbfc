# SPDX-License-Identifier: Apache-2.0
"""Conversion between low-rate messages (CDR, little endian) and plain data, for any message of ``msg/``."""

from __future__ import annotations

import struct
from typing import Any

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND
from rths_nodes.core.wire.layout import CODES, ENCAPSULATION, HEADER, TIME, definition, fields_of, stamp_of


def encode(message: str, values: Data) -> bytes:
    """Return the CDR bytes of a message with plain values. Its header has ``stamp`` (ns) and ``frame_id``."""
    out = bytearray(ENCAPSULATION)

    def put(code: str, size: int, *numbers: object) -> None:
        out.extend(b"\0" * (-(len(out) - 4) % size))
        out.extend(struct.pack(f"<{len(numbers)}{code}", *numbers))

    def put_text(value: str) -> None:
        data = value.encode() + b"\0"
        put("I", 4, len(data))
        out.extend(data)

    for name, kind, is_array in fields_of(definition(message)):
        if kind in (HEADER, TIME):
            put("I", 4, *stamp_of(values.get("stamp", 0)))
            if kind == HEADER:
                put_text(values.get("frame_id", ""))
        elif is_array:
            entries = values.get(name, ())
            put("I", 4, len(entries))
            for entry in entries:
                put_text(entry) if kind == "string" else put(*CODES[kind], entry)
        elif kind == "string":
            put_text(values.get(name, ""))
        else:
            put(*CODES[kind], values.get(name, 0))
    return bytes(out)


def decode(message: str, data: bytes, text: str | None = None) -> Data:
    """Return the plain values of a message, as for :func:`encode`.

    ``text`` is the recorded definition of the message, if it differs from ``msg/``. Raises ValueError if ``data``
    is not a message of this type.
    """
    at = 4

    def get(code: str, size: int) -> Any:
        nonlocal at
        at += -(at - 4) % size
        (number,) = struct.unpack_from("<" + code, data, at)
        at += size
        return number

    def get_text() -> str:
        nonlocal at
        length = get("I", 4)
        if at + length > len(data):
            raise ValueError("a string is longer than the message")
        text = data[at : at + length].rstrip(b"\0").decode()
        at += length
        return text

    values: Data = {}
    try:
        if data[:4] != ENCAPSULATION:
            raise ValueError("the byte order or the encapsulation differs")
        for name, kind, is_array in fields_of(definition(message) if text is None else text):
            if kind in (HEADER, TIME):
                values["stamp"] = get("I", 4) * SECOND + get("I", 4)
                if kind == HEADER:
                    values["frame_id"] = get_text()
            elif is_array:
                count = get("I", 4)
                if count > len(data):
                    raise ValueError("an array is longer than the message")
                values[name] = [get_text() if kind == "string" else get(*CODES[kind]) for _ in range(count)]
            else:
                values[name] = get_text() if kind == "string" else get(*CODES[kind])
    except (struct.error, ValueError, KeyError) as error:
        raise ValueError(f"{message}: the data are not a message of this type ({error})") from error
    return values
