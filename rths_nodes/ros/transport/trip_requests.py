# SPDX-License-Identifier: Apache-2.0
"""Trip requests of programs outside of a test, on the topic of its nodes' trips.

A request is a Trip without a run (empty ``frame_id``) whose ``source`` is not a node of a test. Others are
ignored.
"""

from __future__ import annotations

from rths_nodes.core.wire.plain import decode
from rths_nodes.core.wire.run_mark import FIELD_AT, NO_RUN
from rths_nodes.ros.names import CONSOLE, ROLES, role_of

LONGEST = 200
"""Limit of source and reason of a request, characters."""


def reason_of(frame_id: str, source: str, reason: str) -> str | None:
    """Return the printable reason of a request; None for another Trip."""
    if frame_id or role_of(source) in (*ROLES, CONSOLE):
        return None
    source, reason = map(_printable, (source, reason))
    return ": ".join(filter(None, (f"trip requested by {source}" if source else "trip requested", reason)))


def request_in(data: bytes) -> str | None:
    """Return the reason of a request in a message, by :func:`reason_of`, or None."""
    if not data.startswith(NO_RUN, FIELD_AT):
        return None
    try:
        values = decode("Trip", data)
    except ValueError:
        return None
    return reason_of(values["frame_id"], values["source"], values["reason"])


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:LONGEST])
