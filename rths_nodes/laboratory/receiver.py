"""The receiver that a laboratory takes to its target (``examples/udp_target``), run here: the same C code.

It is compiled when it is needed, with the C compiler of this machine, and has no copy in Python: what the emulator
does with a datagram, a target does.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import resource
from rths_nodes.laboratory.ports.datagrams import LARGEST, LARGEST_AUXILIARY, LARGEST_AXES

QUEUE = 64
RESULTS = ("taken", "garbage", "foreign", "repeated", "late", "early", "refused")
"""What becomes of a datagram, as the receiver counts it."""
COMPILER_OPTIONS = ("-O2", "-std=c99", "-shared", "-fPIC", "-ffp-contract=off")
"""The last one: the same sums on every processor."""

_Axes, _Channels = ctypes.c_double * LARGEST_AXES, ctypes.c_double * LARGEST_AUXILIARY


class _Limits(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_double) for name in ("stroke", "velocity", "acceleration"))


class _Config(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint8) for name in ("axes", "inputs", "channels")),
        *((name, ctypes.c_uint32) for name in ("period_ns", "bridged", "watchdog", "flags")),
        ("limits", _Limits * LARGEST_AXES),
    )


class _Command(ctypes.Structure):
    _fields_ = (
        ("counter", ctypes.c_uint32),
        ("trigger", ctypes.c_uint32),
        ("command", _Axes),
        ("slope", _Axes),
        ("input", _Channels),
    )


class Sensors(ctypes.Structure):
    """What the target has measured at a tick: displacement (m), force (N), channels, state of the rig."""

    _fields_ = (
        ("displacement", _Axes),
        ("force", _Axes),
        ("channel", _Channels),
        ("mode", ctypes.c_uint8 * LARGEST_AXES),
        *((name, ctypes.c_uint8) for name in ("hydraulics", "interlock", "saturated")),
    )


_STATES = ("state", "reason", "transport", "lockstep", "asked_reason", "reply_due", "rejoining")
_NUMBERS = ("session", "asked_session", "asked_counter", "ticks", "counter", "driven", "newest", "missing")


class _Target(ctypes.Structure):
    _fields_ = (
        ("config", _Config),
        ("dt", ctypes.c_double),
        *((name, ctypes.c_uint8) for name in _STATES),
        *((name, ctypes.c_uint32) for name in (*_NUMBERS, "moved_flags", "trigger")),
        ("queue", _Command * QUEUE),
        ("base", _Command),
        ("command", _Axes),
        ("velocity", _Axes),
        ("input", _Channels),
        ("counts", ctypes.c_uint32 * len(RESULTS)),
        ("bridged", ctypes.c_uint32),
        ("limited", ctypes.c_uint32),
    )


@cache
def library() -> Any:
    """The compiled receiver. Raises ConfigError where there is no C compiler, or it fails."""
    source = resource("examples", "udp_target", "rths_target.c")
    named = os.environ.get("CC", "").split()
    found = next((path for name in (named[:1] or ["cc", "gcc", "clang"]) if (path := shutil.which(name))), None)
    if found is None:
        asked = named[0] if named else "cc, gcc, clang"
        raise ConfigError(
            f"no C compiler found ({asked}): the emulator runs the receiver of the rig, which is compiled when it "
            "is needed: sudo apt install gcc, or name one in CC"
        )
    with tempfile.TemporaryDirectory(prefix="rths_") as folder:
        built = Path(folder) / "receiver.so"
        command = [found, *named[1:], *COMPILER_OPTIONS, str(source), "-lm", "-o", str(built)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise ConfigError(f"{source}: {found} cannot compile it: {said[-1] if said else done.returncode}")
        loaded = ctypes.CDLL(str(built))
    target, buffer, size = ctypes.POINTER(_Target), ctypes.c_char_p, ctypes.c_size_t
    for name, result, arguments in (
        ("init", ctypes.c_int, (target, ctypes.POINTER(_Config), ctypes.POINTER(ctypes.c_double))),
        ("receive", ctypes.c_int, (target, buffer, size)),
        ("reply", size, (target, buffer, size)),
        ("state", size, (target, ctypes.POINTER(Sensors), buffer, size)),
        ("drive", None, (target,)),
        ("rest_samples", ctypes.c_uint32, (target,)),
        ("at_rest", ctypes.c_int, (target,)),
        ("checksum", ctypes.c_uint32, (buffer, size)),
    ):
        function = getattr(loaded, f"rths_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


class Receiver:
    """One receiver for one session, of axes with ``limits`` (stroke m, velocity m/s, acceleration m/s^2 each).

    ``dt`` s; ``bridged`` samples are bridged along the slope, after ``watchdog`` samples without a command the
    session is over; ``flags`` as in ``datagrams``; ``inputs`` and ``channels`` are numbers of auxiliary ones;
    ``position`` is where the axes stand, m. Raises ConfigError for what the receiver refuses.
    """

    def __init__(
        self,
        limits: Sequence[tuple[float, float, float]],
        dt: float,
        bridged: int,
        watchdog: int,
        flags: int = 0,
        inputs: int = 0,
        channels: int = 0,
        position: Sequence[float] | None = None,
    ) -> None:
        self._library = library()
        self._target, self.sensors = _Target(), Sensors()
        self._inputs, self._axes = inputs, len(limits)
        self._out = ctypes.create_string_buffer(LARGEST)
        if len(limits) > LARGEST_AXES:
            raise ConfigError(f"axes: {len(limits)}: must be <= {LARGEST_AXES}")
        config = _Config(len(limits), inputs, channels, round(dt * 1e9), bridged, watchdog, flags)
        for row, values in zip(config.limits, limits, strict=False):
            row.stroke, row.velocity, row.acceleration = values
        if self._library.rths_init(self._target, config, _Axes(*(position or ()))):
            raise ConfigError(
                "the receiver refuses its limits: stroke, velocity and acceleration must be > 0, the position "
                f"within the stroke, and its watchdog ({watchdog} samples) longer than its bridge ({bridged})"
            )

    def receive(self, data: bytes) -> str:
        """Take a datagram as it came; what became of it, one of RESULTS."""
        return RESULTS[self._library.rths_receive(self._target, data, len(data))]

    def reply(self) -> bytes:
        """The answer to the datagram that was taken last; empty where none is due."""
        return self._written(self._library.rths_reply(self._target, self._out, LARGEST))

    def state(self) -> bytes:
        """The first half of a tick: what is to be sent of ``sensors``; empty before the test."""
        return self._written(self._library.rths_state(self._target, self.sensors, self._out, LARGEST))

    def drive(self) -> None:
        """The second half: ``command`` of the coming sample."""
        self._library.rths_drive(self._target)

    def _written(self, size: int) -> bytes:
        return self._out.raw[:size] if size else b""

    @property
    def command(self) -> list[float]:
        """m, of each axis."""
        return list(self._target.command[: self._axes])

    @property
    def inputs(self) -> list[float]:
        """The auxiliary inputs."""
        return list(self._target.input[: self._inputs])

    @property
    def in_lockstep(self) -> bool:
        """True where the session wants the tick to wait for its command."""
        return bool(self._target.lockstep)

    @property
    def at_rest(self) -> bool:
        """True once the session is over and nothing moves."""
        return bool(self._library.rths_at_rest(self._target))

    @property
    def rest_samples(self) -> int:
        """Samples after which the rig stands still at the latest, from the last command that came."""
        return int(self._library.rths_rest_samples(self._target))

    def __getattr__(self, name: str) -> int:
        """state_number, reason, counter, newest, bridged, limited, transport, trigger as the receiver has them."""
        if name.startswith("_"):
            raise AttributeError(name)
        return int(getattr(self._target, "state" if name == "state_number" else name))

    def counts(self) -> dict[str, int]:
        """What became of all datagrams, and how many samples were bridged, or driven within limits of its own."""
        found = dict(zip(RESULTS, self._target.counts, strict=True))
        return found | {"bridged": int(self._target.bridged), "limited": int(self._target.limited)}
