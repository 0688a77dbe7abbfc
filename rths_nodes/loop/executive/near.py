# SPDX-License-Identifier: Apache-2.0
"""Port ``udp`` of the executive, in C (``near.c``): source text, session parameters, and checks of reports."""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import socket
from collections import Counter
from pathlib import Path

from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory import receiver
from rths_nodes.laboratory.ports import datagrams, session
from rths_nodes.laboratory.ports.datagrams import LARGEST_AXES
from rths_nodes.laboratory.ports.session import FOREIGN, GARBAGE, LOST, REORDERED, REPEATED
from rths_nodes.laboratory.ports.udp import UdpPort, unusable

COUNTS = (LOST, REPEATED, REORDERED, FOREIGN, GARBAGE)
PROBES = NEEDED = 64
OPENED, REFUSED, NO_ANSWER, OTHER_VERSION, INTERRUPTED = range(5)
"""Results of ``near_connect``."""
_Axes = ctypes.c_double * LARGEST_AXES
_U8, _U16, _U32, _U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64


class Terms(ctypes.Structure):
    _fields_ = (
        *((name, _U64) for name in ("connect_within", "silence", "longest_wait")),
        *(("dt", ctypes.c_double), ("place", _Axes), ("force", _Axes)),
        *((name, _U32) for name in ("address", "session", "period")),
        *((name, _U16) for name in ("port", "local_port", "flags")),
        *((name, _U8) for name in ("axes", "inputs", "channels", "transport")),
    )


class Report(ctypes.Structure):
    _fields_ = (
        *(("taken", _U64), ("sent", _U64), ("counts", _U32 * len(COUNTS))),
        *(("bridged", _U32), ("limited", _U32), ("needed", _U32 * NEEDED)),
        *((name, _U32) for name in ("longest", "stopped", "reason", "heartbeat", "other_version")),
        *((name, _U32) for name in ("other_sender", "unsent", "lockstep", "exchanges")),
        *(("exchanged", _U32 * PROBES), ("answer_size", _U32), ("answer", _U8 * datagrams.LARGEST)),
    )


def text() -> str:
    folder = Path(__file__).parent
    files = (*receiver.sources(), folder / "near.h", folder / "near.c")
    joined = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r'^#include ".*\n', "", joined, flags=re.MULTILINE)


def terms_of(port: UdpPort, params: UdpPort.Params, lockstep: bool) -> Terms:
    """Return the parameters of a session. Raises ConfigError if ``params.address`` has no IPv4 address."""
    try:
        rows = socket.getaddrinfo(params.address, params.port, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        raise ConfigError(
            f"port.address = {params.address!r}: must be an IPv4 address or a host name with an IPv4 address "
            f"({error.strerror})"
        ) from error
    times = params.connect_within, params.silence, params.longest_wait
    terms = Terms(*(round(1e9 * seconds) for seconds in times))
    terms.dt = port.dt
    for axis, gains in enumerate(port.gains):
        terms.place[axis] = gains.displacement / gains.command
        terms.force[axis] = gains.force / gains.newtons
    terms.address = int.from_bytes(socket.inet_aton(rows[0][4][0]), "big")  # type: ignore[arg-type]  # IPv4
    terms.session, terms.period = params.session or secrets.randbelow(2**32 - 1) + 1, port.head.period
    terms.port, terms.local_port, terms.flags = params.port, params.local_port, port.flags(lockstep)
    terms.axes, terms.inputs, terms.channels = port.head.axes, port.head.auxiliary, len(port.channels)
    terms.transport = port.head.transport
    return terms


def agree(port: UdpPort, params: UdpPort.Params, result: int, report: Report) -> None:
    """Check the ``result`` of ``near_connect``. A negative result is the negated errno of ``near_open``.

    Raises ConfigError if no session was opened or the rig does not match ``port``, and KeyboardInterrupt after a
    stop request.
    """
    if result < 0:
        raise unusable(params.local_port, os.strerror(-result))
    if result == INTERRUPTED:
        raise KeyboardInterrupt(f"{port.link.label}: cannot connect, because a stop was requested")
    if result == OTHER_VERSION:
        raise session.other_version(port, report.other_version)
    if result not in (OPENED, REFUSED):
        sender = socket.inet_ntoa(report.other_sender.to_bytes(4, "big")) if report.other_sender else ""
        unsent = os.strerror(report.unsent) if report.unsent else ""
        raise session.no_answer(port, report.counts[-1], sender, unsent)
    data = bytes(report.answer[: report.answer_size])
    head = datagrams.head_of(data)
    answer = session.checked_answer(port, head, data)
    delays = [] if report.lockstep else report.exchanged[: report.exchanges]
    session.agree(port, head, answer, bool(report.lockstep), delays)


def numbers(port: UdpPort, report: Report) -> dict[str, float]:
    """Return the counts of the C session with the keys of ``port.numbers()``."""
    counts = {"bridged": report.bridged, "limited": report.limited}
    counts |= dict(zip(COUNTS, report.counts, strict=True))
    needed = Counter({samples: count for samples, count in enumerate(report.needed) if count})
    result = session.numbers_of(counts, port.transport_samples, needed)
    return result | ({"transport_largest": report.longest} if needed else {})


def stopped(port: UdpPort, params: UdpPort.Params, report: Report) -> str:
    """Return the reason why the rig cannot continue, with the text of ``port.interlock``, or an empty string."""
    patience = params.longest_wait if report.lockstep else params.silence
    reasons = (
        session.interlocked("udp"),
        session.stopped("udp", report.reason),
        session.silent(port.address, patience),
    )
    return ("", *reasons)[report.stopped]
