# SPDX-License-Identifier: Apache-2.0
"""Trips that are requested by programs outside of a test, on the topic of the trips of its nodes.

A request is a Trip without a run (empty ``frame_id``) whose ``source`` is no node of a test. A Trip of another
run, or in the name of a node, is none.
"""

from __future__ import annotations

from rths_nodes.core.wire.plain import decode
from rths_nodes.core.wire.run_mark import FIELD_AT, NO_RUN
from rths_nodes.ros.names import CONSOLE, ROLES, role_of

LONGEST = 200
"""Characters of a request that are kept of its source, and of its reason."""


def reason_of(frame_id: str, source: str, reason: str) -> str | None:
    """Return the reason to trip of a request, printable; None for another Trip."""
    if frame_id or role_of(source) in (*ROLES, CONSOLE):
        return None
    source, reason = map(_printable, (source, reason))
    return ": ".join(filter(None, (f"trip requested by {source}" if source else "trip requested", reason)))


def request_in(data: bytes) -> str | None:
    """Return the reason of a request in a message, by :func:`reason_of`; None for bytes that are no Trip."""
    if not data.startswith(NO_RUN, FIELD_AT):
        return None
    try:
        values = decode("Trip", data)
    except ValueError:
        return None
    return reason_of(values["frame_id"], values["source"], values["reason"])


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:LONGEST])
