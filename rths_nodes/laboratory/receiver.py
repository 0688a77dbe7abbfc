# SPDX-License-Identifier: Apache-2.0
"""Receiver of a laboratory target: its C code (``examples/udp_target``), compiled for this computer."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.laboratory.ports.datagrams import LARGEST, LARGEST_AXES

UNTESTED = -2
RESULTS = ("taken", "garbage", "foreign", "repeated", "late", "early", "refused")
COMPILER_OPTIONS = ("-O2", "-std=c99", "-shared", "-fPIC", "-ffp-contract=off")
"""Compiler options. The last option forbids fused multiply-add, so that all processors compute the same sums."""


class ReceiverLimits(NamedTuple):
    """Limits of one axis, in units of the datagrams. ``inf`` disables ``following``, ``force`` or ``error``."""

    stroke: float
    velocity: float
    """Largest velocity of the command (change per sample, divided by the period), m/s."""
    acceleration: float
    """Acceleration with which the receiver itself brakes, bridges and rejoins its commands, m/s^2."""
    following: float = math.inf
    """Largest acceleration of commands that arrive in time, m/s^2."""
    force: float = math.inf
    error: float = math.inf
    """Largest magnitude of command minus measured displacement, m."""


class ReceiverLoad(NamedTuple):
    """Force loop of one axis, in units of the datagrams. ``inf`` disables ``error`` or ``travel``."""

    rate: float = 0.0
    """Largest rate of force commands, N/s; 0 if the axis accepts no commands in N."""
    error: float = math.inf
    """Largest magnitude of command minus measured force, N."""
    travel: float = math.inf
    """Largest distance of the axis from the position that stiffness and drift explain, m."""
    stiffness: float = 1.0
    """Stiffness that the force loop loads, N/m."""
    curvature: float = 0.0
    """Curvature, 1/m. A drift u of the axis ``coupled`` extends this axis by curvature u^2 / 2."""
    unit: float = 1.0
    """Unit of the measured force, divided by the unit of force commands."""
    frozen: int = 0
    """Number of consecutive samples with equal force that indicate a failed load cell; 0: no check."""
    coupled: int = 0


_SCALARS = {
    "double": ctypes.c_double,
    "uint8_t": ctypes.c_uint8,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}


@cache
def structures() -> dict[str, Any]:
    """Return the structures of ``rths_target.h`` by C name, as subclasses of ``ctypes.Structure``."""
    header, _ = sources()
    text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    lengths = {"RTHS_RESULTS": len(RESULTS)}
    lengths |= {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)\s", text)}
    types: dict[str, Any] = dict(_SCALARS)
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, re.DOTALL):
        fields = []
        for kind, variables in re.findall(r"(\w+) ([^;]+);", body):
            for variable, length in re.findall(r"(\w+)(?:\[(\w+)\])?", variables):
                fields.append((variable, types[kind] * lengths[length] if length else types[kind]))
        types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return types


def sources() -> tuple[Path, Path]:
    folder = ("examples", "udp_target")
    return resource(*folder, "rths_target.h"), resource(*folder, "rths_target.c")


def build_number() -> int:
    return int.from_bytes(
        hashlib.sha256(b"".join(source.read_bytes() for source in sources())).digest()[:8], "big"
    )


@cache
def library() -> ctypes.CDLL:
    _, source = sources()
    named = os.environ.get("CC", "").split()
    compiler = next((path for name in (named[:1] or ["cc", "gcc", "clang"]) if (path := shutil.which(name))), None)
    if compiler is None:
        asked = named[0] if named else "cc, gcc, clang"
        raise ConfigError(
            f"no C compiler found ({asked}), but the emulator must compile the receiver of the rig. Install gcc "
            "(sudo apt install gcc), or set CC"
        )
    with tempfile.TemporaryDirectory(prefix="rths_") as folder:
        built = Path(folder) / "receiver.so"
        build = f"-DRTHS_BUILD={build_number()}u"
        command = [compiler, *named[1:], *COMPILER_OPTIONS, build, str(source), "-lm", "-o", str(built)]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise ConfigError(
                f"{source}: {compiler} cannot compile this file ({lines[-1] if lines else done.returncode})"
            )
        loaded = ctypes.CDLL(str(built))
    declared, double = structures(), ctypes.POINTER(ctypes.c_double)
    target, config, sensors = (
        ctypes.POINTER(declared[f"rths_{name}"]) for name in ("target", "config", "sensors")
    )
    buffer, size = ctypes.c_char_p, ctypes.c_size_t
    for name, result, arguments in (
        ("init", ctypes.c_int, (target, config, double)),
        ("receive", ctypes.c_int, (target, buffer, size, ctypes.c_uint64)),
        ("reply", size, (target, buffer, size)),
        ("state", size, (target, sensors, buffer, size)),
        ("drive", None, (target,)),
        ("rest_samples", ctypes.c_uint32, (target,)),
        ("at_rest", ctypes.c_int, (target,)),
        ("checksum", ctypes.c_uint32, (buffer, size)),
        ("self_test", ctypes.c_int, ()),
        ("root", ctypes.c_double, (ctypes.c_double,)),
        ("field", ctypes.c_char_p, (ctypes.c_int,)),
        ("bound", ctypes.c_char_p, (ctypes.c_int,)),
        ("axis", ctypes.c_int, (ctypes.c_int,)),
    ):
        function = getattr(loaded, f"rths_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


class Receiver:
    """Runs the compiled receiver for one session. ``limits`` has one entry per axis. ``dt`` is the period, s.

    At most ``bridged`` missing samples are extrapolated along the last slope. The session ends after ``watchdog``
    samples without a command, or after ``persistence`` consecutive samples beyond a limit of force or error.
    ``flags`` are defined in ``datagrams``. ``inputs`` and ``channels`` are the numbers of auxiliary inputs and
    channels. Axes with the same number in ``groups`` stop together. ``units`` are the units of measured
    displacements, divided by the units of commands. ``metres`` are command units per metre. ``loads`` are the
    force loops of the controller, which may need ``switching`` samples to change a mode. ``position`` is the
    initial position, m. Raises ConfigError if the receiver refuses an argument or fails its self-test.
    """

    def __init__(
        self,
        limits: Sequence[ReceiverLimits],
        dt: float,
        bridged: int,
        watchdog: int,
        flags: int = 0,
        inputs: int = 0,
        channels: int = 0,
        persistence: int = 1,
        groups: Sequence[int] | None = None,
        units: Sequence[float] | None = None,
        loads: Sequence[ReceiverLoad] = (),
        switching: int = 1,
        position: Sequence[float] = (),
        metres: Sequence[float] = (),
    ) -> None:
        self._library = library()
        declared = structures()
        self._target = declared["rths_target"]()
        self.sensors: ctypes.Structure = declared["rths_sensors"]()
        """Measured values of the target at a tick: displacement (m), force (N), auxiliary channels, rig state."""
        self._inputs, self._axes = inputs, len(limits)
        self._out = ctypes.create_string_buffer(LARGEST)
        if len(limits) > LARGEST_AXES:
            raise ConfigError(f"axes: the number of axes is {len(limits)}; must be <= {LARGEST_AXES}")
        sizes = len(limits), inputs, channels
        config = declared["rths_config"](*sizes, round(dt * 1e9), bridged, watchdog, persistence, flags)
        config.limits[: self._axes] = [declared["rths_limits"](*row) for row in limits]
        config.group[: self._axes] = range(self._axes) if groups is None else groups
        config.unit[: self._axes] = [1.0] * self._axes if units is None else units
        config.load[: len(loads)], config.switching = [declared["rths_load"](*row) for row in loads], switching
        config.metre[: len(metres)] = metres
        result = self._library.rths_init(self._target, config, (ctypes.c_double * LARGEST_AXES)(*position))
        if result == UNTESTED:
            raise ConfigError(
                f"the receiver, compiled with {os.environ.get('CC', 'the C compiler')}, fails its self-test with "
                f"result {self._library.rths_self_test()} (rths_target.h)"
            )
        if result:
            raise self._refusal(result, config, position)

    def _refusal(self, result: int, config: Any, position: Sequence[float]) -> ConfigError:
        field, bound = (text(result).decode() for text in (self._library.rths_field, self._library.rths_bound))
        axis = self._library.rths_axis(result)
        first, _, last = field.partition("[]")
        value = position if first == "position" else getattr(config, first)
        if axis >= 0:
            value = value[axis]
        if last:
            value = getattr(value, last.removeprefix("."))
        path = field.replace("[]", f"[{axis}]")
        return ConfigError(f"receiver.{path} = {value:g}: must be {bound} (rths_target.h)")

    def receive(self, data: bytes, sender: int = 0) -> str:
        return RESULTS[self._library.rths_receive(self._target, data, len(data), sender)]

    def reply(self) -> bytes:
        return self._written(self._library.rths_reply(self._target, self._out, LARGEST))

    def state(self) -> bytes:
        """Return the state datagram for ``sensors``; empty before the test. Call this first in each tick."""
        return self._written(self._library.rths_state(self._target, self.sensors, self._out, LARGEST))

    def drive(self) -> None:
        """Compute ``command`` for the next sample. Call this last in each tick."""
        self._library.rths_drive(self._target)

    def _written(self, size: int) -> bytes:
        return self._out.raw[:size] if size else b""

    @property
    def command(self) -> list[float]:
        """Active commands, in N for axes in force mode, otherwise in m."""
        return list(self._target.command[: self._axes])

    @property
    def modes(self) -> bytes:
        return bytes(self._target.mode[: self._axes])

    @property
    def inputs(self) -> list[float]:
        return list(self._target.input[: self._inputs])

    @property
    def in_lockstep(self) -> bool:
        return bool(self._target.lockstep)

    @property
    def at_rest(self) -> bool:
        return bool(self._library.rths_at_rest(self._target))

    @property
    def rest_samples(self) -> int:
        return int(self._library.rths_rest_samples(self._target))

    def __getattr__(self, name: str) -> int:
        """Return an integer field of the C receiver, such as ``reason``, ``counter`` or ``transport``.

        ``state_number`` is the C field ``state``.
        """
        if name.startswith("_"):
            raise AttributeError(name)
        return int(getattr(self._target, "state" if name == "state_number" else name))

    def counts(self) -> dict[str, int]:
        counts = dict(zip(RESULTS, self._target.counts, strict=True))
        return counts | {"bridged": int(self._target.bridged), "limited": int(self._target.limited)}
