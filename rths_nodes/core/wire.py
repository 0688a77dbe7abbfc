# SPDX-License-Identifier: Apache-2.0
"""Messages as CDR bytes, little endian. The ``.msg`` texts in ``msg/`` define the layouts.

The field ``run`` of a message contains the mark of its run, and follows a header with an empty ``frame_id``.
The mark has a constant length and position, so layouts are constant and a node can compare the mark first.

A message of bounded arrays has a constant layout once the lengths of its arrays are fixed. One precompiled
``struct`` packs and unpacks a sample in about 2 us (:class:`Codec`); rclpy's typed conversion takes 20 us. Padding
is zero. Arrays are read-only. :func:`encode` and :func:`decode` convert any message, for low rates.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter, methodcaller
from typing import Any, TypeVar

import numpy as np

from rths_nodes.core.data import Data
from rths_nodes.core.durations import SECOND
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.core.samples import (
    MODE_DISPLACEMENT,
    MODE_FORCE,
    MODE_NOT_TOLD,
    Array,
    Command,
    Measurement,
    Target,
)

LENGTH = 23
"""Number of characters in a mark, chosen so that numbers after the mark are aligned."""
FIELD_AT = 20
"""Offset of the field ``run`` in a message, bytes."""
FIELD_SIZE = 4 + LENGTH + 1
NO_RUN = struct.pack("<I", 1) + b"\0"
_BEFORE = "rths_"


def mark_of(run_id: str, salt: str = "") -> str:
    """Return the mark of a run. ``salt`` distinguishes replays, and runs with the same name."""
    digest = hashlib.sha256(f"{run_id}\0{salt}".encode()).hexdigest()
    return _BEFORE + digest[: LENGTH - len(_BEFORE)]


class RunMark:
    """Mark of the run. ``mark`` is empty until the node knows the run.

    ``field`` contains the bytes at ``FIELD_AT`` of every message of the run. Until the run is known, ``field`` is
    a placeholder that matches no message.
    """

    def __init__(self, mark: str = "") -> None:
        self.mark, self.field = "", _field("-" * LENGTH)
        if mark:
            self.become(mark)

    def become(self, mark: str) -> None:
        if len(mark) != LENGTH or not (mark.isascii() and mark.isprintable()):
            raise ConfigError(
                f"run = {mark!r}: must be {LENGTH} printable ASCII characters, the same in all messages of a run"
            )
        self.mark, self.field = mark, _field(mark)

    def has_sent(self, data: bytes) -> bool:
        return data.startswith(self.field, FIELD_AT)


def _field(mark: str) -> bytes:
    return struct.pack("<I", LENGTH + 1) + mark.encode() + b"\0"


T = TypeVar("T")
ENCAPSULATION = b"\x00\x01\x00\x00"
HEAD = struct.Struct(f"<4x2I8x{FIELD_SIZE}xI")
"""First numbers of every sample message: seconds and nanoseconds of the stamp, and sample or step number."""
EMPTY = 1
HEADER = "std_msgs/Header"
TIME = "builtin_interfaces/Time"
TRAILING = 8
"""Largest number of bytes that the middleware appends, e.g. to align an empty array."""
SEPARATOR = "=" * 80
UNBOUNDED = 1 << 32
Make = Callable[[tuple[int, ...], list[Array], list[bytes]], T]
CODES = {"bool": ("?", 1), "uint8": ("B", 1), "uint32": ("I", 4), "float32": ("f", 4), "float64": ("d", 8)}
FIELD = re.compile(
    r"^\s*(?P<type>[A-Za-z0-9_/]+)(?P<array>\[(?:<=(?P<bound>\d+))?\])?\s+(?P<name>\w+)\s*(?:#.*)?$"
)


@cache
def definition(message: str) -> str:
    return resource("msg", f"{message}.msg").read_text(encoding="utf-8")


@cache
def fields_of(text: str) -> tuple[tuple[str, str, int], ...]:
    """Return the name, type and largest array length (0 for a scalar) of each field that ``text`` defines."""
    matches = filter(None, map(FIELD.match, text.partition(SEPARATOR)[0].splitlines()))
    return tuple(
        (match["name"], match["type"], int(match["bound"] or UNBOUNDED) if match["array"] else 0)
        for match in matches
    )


def bound_of(message: str, field: str) -> int:
    return next(bound for name, _, bound in fields_of(definition(message)) if name == field)


class Layout:
    """Packs and unpacks messages of ``run`` in a constant layout: header, mark, scalars and bounded arrays.

    An array without an entry in ``lengths`` is empty. float64 scalars form an additional first array. Raises
    ConfigError for a length that exceeds the bound of its array.
    """

    def __init__(self, message: str, lengths: Mapping[str, int], run: RunMark) -> None:
        self.message = message
        self._run = run
        counts: list[int] = []
        reals, self._numbers, self._octets = slice(0, 0), list[slice](), list[slice]()
        # formats of the complete message, and of its integers only
        parts, integers = [f"<4s3I4x{FIELD_SIZE}s"], [f"<4s2I8x{FIELD_SIZE}s"]
        offset, scalars = FIELD_AT - len(ENCAPSULATION) + FIELD_SIZE, 0
        for name, kind, bound in fields_of(definition(message)):
            if kind in (HEADER, "string"):
                continue
            code, size = CODES[kind]
            count = lengths.get(name, 0) if bound else 1
            if bound:
                if count > bound:
                    raise ConfigError(
                        f"{message}.{name}: has {count} entries, but at most {bound} fit into the message"
                    )
                for part in (parts, integers):
                    part.append(f"{-offset % 4}xI")
                offset += -offset % 4 + 4
                counts.append(count)
            gap = -offset % size if count else 0
            offset += gap
            parts.append(f"{gap}x{count}{code}")
            skipped = bool(bound) or code == "d"
            integers.append(f"{gap + count * size}x" if skipped else parts[-1])
            scalars += not skipped
            if code == "d":
                cells = slice(offset // size, offset // size + count)
                if bound:
                    self._numbers.append(cells)
                else:
                    reals = slice(reals.start or cells.start, cells.stop)
            elif bound:
                self._octets.append(slice(offset + len(ENCAPSULATION), offset + len(ENCAPSULATION) + count))
            offset += count * size
        if reals.stop:
            self._numbers.insert(0, reals)
        self._struct, self._integers = struct.Struct("".join(parts)), struct.Struct("".join(integers))
        self._counts = tuple(counts)
        self._head, self._tail = slice(4, 4 + scalars), slice(4 + scalars, None)
        self._cells = offset // 8
        self.size = self._struct.size

    def pack(self, stamp: int, head: Sequence[float], arrays: Sequence[Sequence[float]]) -> bytes:
        row: list[object] = [ENCAPSULATION, *divmod(stamp, SECOND), EMPTY, self._run.field, *head]
        for count, values in zip(self._counts, arrays, strict=True):
            row.append(count)
            row += values
        return self._struct.pack(*row)

    def reader(self, make: Make[T]) -> Callable[[bytes], tuple[T, int]]:
        """Return a function that converts the bytes of a message to the result of ``make`` and the stamp in ns.

        The function raises ValueError for a message of another layout or run. The last result is cached, because
        nodes of a process share messages.
        """
        last: tuple[bytes, tuple[T, int]] | None = None

        def read(data: bytes) -> tuple[T, int]:
            nonlocal last
            if last is not None and last[0] is data:
                return last[1]
            if not self.size <= len(data) <= self.size + TRAILING:
                raise ValueError(f"{self.message}: received {len(data)} bytes, expected {self.size} bytes")
            row = self._integers.unpack_from(data)
            if row[0] != ENCAPSULATION or row[self._tail] != self._counts:
                raise ValueError(f"{self.message}: array lengths or byte order differ from the configuration")
            if row[3] != self._run.field:
                raise ValueError(f"{self.message}: the message belongs to another run")
            # the copy aligns the numbers; arrays over bytes are read-only
            content = np.frombuffer(data[len(ENCAPSULATION) :], np.float64, self._cells)
            numbers, octets = map(content.__getitem__, self._numbers), map(data.__getitem__, self._octets)
            values = make(row[self._head], list(numbers), list(octets)), row[1] * SECOND + row[2]
            last = data, values
            return values

        return read


def stamp_of(nanoseconds: int) -> tuple[int, int]:
    return divmod(nanoseconds, SECOND)


def number_of(data: bytes) -> int:
    number: int = HEAD.unpack_from(data)[2]
    return number


@cache
def constants(message: str) -> dict[str, int]:
    """Return the constants of a message by name, e.g. ``{"IDLE": 0, ...}`` of TestState."""
    pairs = re.findall(r"^\s*\w+\s+([A-Z_]+)\s*=\s*(\d+)", definition(message), re.MULTILINE)
    return {name: int(value) for name, value in pairs}


TO_LIST = methodcaller("tolist")
MOTION = ("displacement", "velocity", "acceleration", "exact_acceleration")
DOF = (*MOTION, "external_force", "restoring_force")
OF_TARGET = attrgetter(*DOF, "auxiliary")


class Codec:
    """Converts samples of one rig to bytes and back. Stamps are nanoseconds since the epoch.

    ``n_auxiliary`` is the number of measured auxiliary channels, and ``n_inputs`` the number of auxiliary channels
    of a command. ``n_state`` is the number of the compensator's internal quantities, and ``n_updating`` the number
    of quantities of model updating. The last ``n_force`` axes may be controlled by force. Messages of runs other
    than ``run`` are refused. ``unpack_target``, ``unpack_command`` and ``unpack_measurement`` return the sample
    and the stamp of a message.
    """

    def __init__(
        self,
        n_dof: int,
        n_axes: int,
        n_state: int,
        n_auxiliary: int = 0,
        n_inputs: int = 0,
        run: RunMark | None = None,
        n_force: int = 0,
        n_updating: int = 0,
    ) -> None:
        self.run = run = run or RunMark()
        axes = dict.fromkeys(("control_mode", "target", "command", "displacement", "force"), n_axes)
        self.sizes = (n_dof, n_axes, n_state, n_auxiliary, n_inputs)
        self._displacement, self._not_told = bytes([MODE_DISPLACEMENT]) * n_axes, bytes([MODE_NOT_TOLD]) * n_axes
        self._n_moved = n_axes - n_force
        self._target = Layout("Target", dict.fromkeys(DOF, n_dof) | {"auxiliary": n_inputs}, run)
        self._command = Layout("Command", axes | {"auxiliary": n_inputs}, run)
        self._measurement = Layout("Measurement", axes | {"auxiliary": n_auxiliary}, run)
        self._state = Layout("CompensatorState", {"values": n_state}, run)
        self._updating = Layout("CompensatorState", {"values": n_updating}, run)
        self.unpack_target = self._target.reader(_target)
        self.unpack_command = self._command.reader(self._as_command)
        self.unpack_measurement = self._measurement.reader(self._as_measurement)

    @property
    def largest(self) -> int:
        return max(
            layout.size for layout in (self._target, self._command, self._measurement, self._state, self._updating)
        )

    def pack_target(self, target: Target, stamp: int) -> bytes:
        head = (target.step, target.flags, *target.energies.tolist())
        return self._target.pack(stamp, head, list(map(TO_LIST, OF_TARGET(target))))

    def pack_command(self, command: Command, stamp: int) -> bytes:
        arrays = map(TO_LIST, (command.target, command.command, command.auxiliary))
        modes = command.control_mode or self._displacement
        return self._command.pack(stamp, (command.sample, command.flags), (modes, *arrays))

    def _as_command(self, head: tuple[int, ...], arrays: list[Array], octets: list[bytes]) -> Command:
        (sample, flags), (target, command, auxiliary), (modes,) = head, arrays, octets
        if modes == self._displacement:
            return Command(sample, target, command, auxiliary, flags)
        self._check_modes(modes)
        return Command(sample, target, command, auxiliary, flags, modes)

    def _check_modes(self, modes: bytes) -> None:
        n = self._n_moved
        if n == len(modes):
            raise ValueError(f"Command: control_mode {list(modes)}: must be displacement on all axes")
        moved, loaded = modes[:n], modes[n:]
        if moved != self._displacement[:n] or set(loaded) - {MODE_DISPLACEMENT, MODE_FORCE}:
            raise ValueError(
                f"Command: control_mode {list(modes)}: must be displacement on the first {n} axes, "
                "and displacement or force on the other axes"
            )

    def pack_measurement(self, measured: Measurement, stamp: int) -> bytes:
        arrays = map(TO_LIST, (measured.displacement, measured.force, measured.command, measured.auxiliary))
        modes = measured.control_mode or self._not_told
        head = (measured.sample, measured.flags, measured.hydraulics, measured.interlock)
        return self._measurement.pack(stamp, head, (modes, *arrays))

    def _as_measurement(self, head: tuple[int, ...], arrays: list[Array], octets: list[bytes]) -> Measurement:
        (sample, flags, hydraulics, interlock), (modes,) = head, octets
        displacement, force, command, auxiliary = arrays
        shown_modes = b"" if modes == self._not_told else modes
        return Measurement(
            sample, displacement, force, command, auxiliary, flags, shown_modes, hydraulics, interlock
        )

    def pack_updating(self, values: Sequence[float], sample: int, flags: int, stamp: int) -> bytes:
        return self._updating.pack(stamp, (sample, flags), (values,))

    def pack_state(self, values: Sequence[float], sample: int, flags: int, stamp: int) -> bytes:
        return self._state.pack(stamp, (sample, flags), (values,))


def _target(head: tuple[int, ...], arrays: list[Array], octets: list[bytes]) -> Target:
    step, flags = head
    energies, x, v, a, exact, external, restoring, auxiliary = arrays
    return Target(step, x, v, a, exact, external, restoring, auxiliary, flags, energies)


def encode(message: str, values: Data) -> bytes:
    """Return the CDR bytes of a message. ``values`` may include ``stamp`` (ns) and ``frame_id`` of the header."""
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
    """Return the plain values of a message, in the form that :func:`encode` accepts.

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
            raise ValueError("the encapsulation must be little-endian CDR")
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
