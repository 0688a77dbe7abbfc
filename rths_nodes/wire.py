"""Sample types <-> bytes on the wire (CDR, little endian).

The layout is read from the ``.msg`` text, so ``msg/`` stays its only home. A message of bounded arrays has a
constant layout once the lengths of its arrays are fixed: one precompiled ``struct`` packs and unpacks it
(about 2 us, where the typed conversion of rclpy takes 20). Padding is zero. Values are copied out of the
buffer, so that arrays are aligned; they are read-only, because several nodes of one process may have them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from rths_nodes.components import Array, Command, Measurement, Target
from rths_nodes.params import ConfigError
from rths_nodes.resources import resource

ENCAPSULATION = b"\x00\x01\x00\x00"
SECOND = 1_000_000_000
TRAILING = 8
"""Bytes that the middleware may append: it aligns for the numbers of an array even when there are none."""
_CODES = {"bool": ("?", 1), "uint8": ("B", 1), "uint32": ("I", 4), "float64": ("d", 8)}
_FIELD = re.compile(
    r"^\s*(?P<type>[A-Za-z0-9_/]+)(?P<array>\[(?:<=(?P<bound>\d+))?\])?\s+(?P<name>\w+)\s*(?:#.*)?$"
)


@cache
def definition(message: str) -> str:
    """The text of ``msg/<message>.msg``."""
    return resource("msg", f"{message}.msg").read_text()


def fields(message: str) -> list[tuple[str, str, int]]:
    """Name, type and array bound (0 for a scalar) of each field; ``Time`` is split into its two numbers."""
    found = []
    for line in definition(message).splitlines():
        match = _FIELD.match(line)
        if not match:
            continue
        if match["type"] == "builtin_interfaces/Time":
            found += [("sec", "uint32", 0), ("nanosec", "uint32", 0)]
        else:
            found.append((match["name"], match["type"], int(match["bound"] or 0)))
    return found


class Layout:
    """The constant layout of one message: scalars first, then bounded arrays of given ``lengths`` (by name).

    An array that is not named has length zero. Raises ConfigError for a length beyond the bound.
    """

    def __init__(self, message: str, lengths: Mapping[str, int]) -> None:
        self.message = message
        self.arrays: tuple[str, ...] = ()
        counts: list[int] = []
        self._numbers: list[slice] = []
        # all of it, and with the entries of the arrays skipped
        parts, integers, offset, scalars = ["<4s"], ["<4s"], 0, 0
        for name, kind, bound in fields(message):
            code, size = _CODES[kind]
            if not bound:
                parts.append(f"{-offset % size}x{code}")
                integers.append(parts[-1])
                offset += -offset % size + size
                scalars += 1
                continue
            count = lengths.get(name, 0)
            if count > bound:
                raise ConfigError(f"{message}.{name}: {count} entries, at most {bound} fit into the message")
            parts.append(f"{-offset % 4}xI")
            integers.append(parts[-1])
            offset += -offset % 4 + 4
            if count:
                parts.append(f"{-offset % size}x{count}{code}")
                integers.append(f"{-offset % size + count * size}x")
                offset += -offset % size
            self.arrays += (name,)
            counts.append(count)
            if code == "d":
                self._numbers.append(slice(offset // size, offset // size + count))
            offset += count * size
        self._struct, self._integers = struct.Struct("".join(parts)), struct.Struct("".join(integers))
        self._counts = tuple(counts)
        self._head, self._tail = slice(1, 1 + scalars), slice(1 + scalars, None)
        self._cells = offset // 8
        self.size = self._struct.size
        self._last: tuple[bytes | None, tuple[tuple[int, ...], list[Array]]] = (None, ((), []))

    def pack(self, head: Sequence[int], arrays: Sequence[Sequence[float]]) -> bytes:
        """Bytes of the message with the scalars ``head`` (in order) and the ``arrays`` (in order)."""
        row: list[Any] = [ENCAPSULATION, *head]
        for count, values in zip(self._counts, arrays, strict=True):
            row.append(count)
            row += values
        return self._struct.pack(*row)

    def unpack(self, data: bytes) -> tuple[tuple[int, ...], list[Array]]:
        """Scalars and float64 arrays of the message; raises ValueError when ``data`` has another layout.

        What was unpacked last is known: in one process a message goes to several nodes.
        """
        if data is self._last[0]:
            return self._last[1]
        if not self.size <= len(data) <= self.size + TRAILING:
            raise ValueError(f"{self.message}: {len(data)} bytes, expected {self.size}")
        row = self._integers.unpack_from(data)
        if row[0] != ENCAPSULATION or row[self._tail] != self._counts:
            raise ValueError(f"{self.message}: other array lengths or another byte order than configured")
        content = np.frombuffer(data, np.float64, self._cells, 4).copy()
        content.flags.writeable = False
        found = row[self._head], [content[part] for part in self._numbers]
        self._last = data, found
        return found


def stamp_of(nanoseconds: int) -> tuple[int, int]:
    """Nanoseconds since the epoch as the two numbers of a ``Time``."""
    return divmod(nanoseconds, SECOND)


class Codec:
    """Sample types of one rig <-> bytes. Stamps are nanoseconds since the epoch.

    ``n_auxiliary`` counts the measured auxiliary channels, ``n_inputs`` those of a command, ``n_state`` the
    compensator's inner numbers.
    """

    def __init__(self, n_dof: int, n_axes: int, n_state: int, n_auxiliary: int = 0, n_inputs: int = 0) -> None:
        dof = (
            "displacement",
            "velocity",
            "acceleration",
            "exact_acceleration",
            "external_force",
            "restoring_force",
        )
        axes = dict.fromkeys(("control_mode", "target", "command", "displacement", "force"), n_axes)
        self.sizes = (n_dof, n_axes, n_state, n_auxiliary, n_inputs)
        self._modes = [0] * n_axes
        self._target = Layout("Target", dict.fromkeys(dof, n_dof) | {"auxiliary": n_inputs})
        self._command = Layout("Command", axes | {"auxiliary": n_inputs})
        self._measurement = Layout("Measurement", axes | {"auxiliary": n_auxiliary})
        self._state = Layout("CompensatorState", {"values": n_state})

    def pack_target(self, target: Target, stamp: int) -> bytes:
        arrays = (
            target.displacement,
            target.velocity,
            target.acceleration,
            target.exact_acceleration,
            target.external_force,
            target.restoring_force,
            target.auxiliary,
        )
        return self._target.pack((*stamp_of(stamp), target.step, target.flags), [a.tolist() for a in arrays])

    def unpack_target(self, data: bytes) -> tuple[Target, int]:
        (sec, nanosec, step, flags), arrays = self._target.unpack(data)
        x, v, a, exact, external, restoring, auxiliary = arrays
        target = Target(step, x, v, a, exact, external, restoring, auxiliary, flags)
        return target, sec * SECOND + nanosec

    def pack_command(self, command: Command, stamp: int) -> bytes:
        arrays = (self._modes, command.target.tolist(), command.command.tolist(), command.auxiliary.tolist())
        return self._command.pack((*stamp_of(stamp), command.sample, command.flags), arrays)

    def unpack_command(self, data: bytes) -> tuple[Command, int]:
        (sec, nanosec, sample, flags), (target, command, auxiliary) = self._command.unpack(data)
        return Command(sample, target, command, auxiliary, flags), sec * SECOND + nanosec

    def pack_measurement(self, measured: Measurement, stamp: int) -> bytes:
        arrays = (
            self._modes,
            measured.displacement.tolist(),
            measured.force.tolist(),
            measured.command.tolist(),
            measured.auxiliary.tolist(),
        )
        return self._measurement.pack((*stamp_of(stamp), measured.sample, measured.flags), arrays)

    def unpack_measurement(self, data: bytes) -> tuple[Measurement, int]:
        (sec, nanosec, sample, flags), arrays = self._measurement.unpack(data)
        displacement, force, command, auxiliary = arrays
        measured = Measurement(sample, displacement, force, command, auxiliary, flags)
        return measured, sec * SECOND + nanosec

    def pack_state(self, sample: int, values: Sequence[float], flags: int, stamp: int) -> bytes:
        return self._state.pack((*stamp_of(stamp), sample, flags), (values,))

    def unpack_state(self, data: bytes) -> tuple[int, Array, int]:
        (sec, nanosec, sample, _), (values,) = self._state.unpack(data)
        return sample, values, sec * SECOND + nanosec


def number_of(data: bytes) -> int:
    """The sample or step number of a message of the loop, which follows its stamp."""
    (number,) = struct.unpack_from("<I", data, 12)
    return int(number)


def encode(message: str, values: Mapping[str, Any]) -> bytes:
    """CDR bytes of any message of this package from plain values (text, numbers, lists; ``stamp`` in ns).

    For the messages at low rates, with text in them; a field that is not given is zero or empty.
    """
    out = bytearray(ENCAPSULATION)

    def put(code: str, size: int, *numbers: Any) -> None:
        out.extend(b"\0" * (-(len(out) - 4) % size))
        out.extend(struct.pack(f"<{len(numbers)}{code}", *numbers))

    def put_text(value: str) -> None:
        data = value.encode() + b"\0"
        put("I", 4, len(data))
        out.extend(data)

    for name, kind, is_array in _described(message):
        if kind == "builtin_interfaces/Time":
            put("I", 4, *stamp_of(values.get(name, 0)))
        elif is_array:
            entries = values.get(name, ())
            put("I", 4, len(entries))
            for entry in entries:
                put_text(entry) if kind == "string" else put(*_CODES[kind], entry)
        elif kind == "string":
            put_text(values.get(name, ""))
        else:
            put(*_CODES[kind], values.get(name, 0))
    return bytes(out)


def decode(message: str, data: bytes) -> dict[str, Any]:
    """The inverse of :func:`encode`. Raises ValueError when ``data`` is not that message."""
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
            raise ValueError("text longer than the message")
        text = data[at : at + length].rstrip(b"\0").decode()
        at += length
        return text

    values: dict[str, Any] = {}
    try:
        if data[:4] != ENCAPSULATION:
            raise ValueError("another byte order or encapsulation")
        for name, kind, is_array in _described(message):
            if kind == "builtin_interfaces/Time":
                values[name] = get("I", 4) * SECOND + get("I", 4)
            elif is_array:
                count = get("I", 4)
                if count > len(data):
                    raise ValueError("array longer than the message")
                values[name] = [get_text() if kind == "string" else get(*_CODES[kind]) for _ in range(count)]
            else:
                values[name] = get_text() if kind == "string" else get(*_CODES[kind])
    except (struct.error, ValueError) as error:
        raise ValueError(f"{message}: not a message of this type ({error})") from error
    return values


@cache
def _described(message: str) -> tuple[tuple[str, str, bool], ...]:
    matches = (_FIELD.match(line) for line in definition(message).splitlines())
    return tuple((match["name"], match["type"], bool(match["array"])) for match in matches if match)


@cache
def constants(message: str) -> dict[str, int]:
    """The constants of a message by name, e.g. ``{"IDLE": 0, ...}`` of TestState."""
    found = re.findall(r"^\s*\w+\s+([A-Z_]+)\s*=\s*(\d+)", definition(message), re.MULTILINE)
    return {name: int(value) for name, value in found}


def numbers_of(data: Any, path: str) -> dict[str, float]:
    """Nested numbers -> names and values of a Summary: ``{"metrics.axes.story_1.delay_s": 0.01}``."""
    if isinstance(data, Mapping):
        pairs: Any = data.items()
    elif isinstance(data, (list, tuple)):
        pairs = enumerate(data)
    else:
        return {path: float(data)}
    found: dict[str, float] = {}
    for key, entry in pairs:
        found |= numbers_of(entry, f"{path}.{key}")
    return found


def nested(numbers: Mapping[str, float], section: str) -> dict[str, Any]:
    """The inverse of :func:`numbers_of` for what stands below ``section``; numbered keys become lists."""
    tree: dict[str, Any] = {}
    for path, value in numbers.items():
        head, *keys = path.split(".")
        if head != section or not keys:
            continue
        place = tree
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        place[keys[-1]] = value
    listed: dict[str, Any] = _listed(tree)
    return listed


def _listed(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    if entry and all(key.isdigit() for key in entry):
        return [_listed(entry[key]) for key in sorted(entry, key=int)]
    return {key: _listed(value) for key, value in entry.items()}
