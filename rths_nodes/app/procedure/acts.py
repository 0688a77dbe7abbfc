"""The acts of an operator, one table for the terminal, a file of answers, and services."""

from __future__ import annotations

from dataclasses import dataclass

from rths_nodes.core.errors import ConfigError


@dataclass(frozen=True)
class Act:
    """What an act does, in words; names of its arguments; ``at_once``: also while another one is under way.

    ``lasting``: it takes its time, and may move the rig: the operator watches meanwhile. ``anybody`` may ask for
    it: it only brings the rig to rest.
    """

    words: str
    arguments: tuple[str, ...] = ()
    lasting: bool = False
    at_once: bool = False
    anybody: bool = False


ACTS = {
    "rehearse": Act("run a rung on the simulator", ("rung",), lasting=True),
    "connect": Act("open the port; the controller's active command becomes ours", lasting=True),
    "take_offsets": Act("what the sensors show at rest, with its scatter", ("seconds",), lasting=True),
    "confirm_offsets": Act("the test counts from these offsets", ("hash", "unloaded")),
    "check": Act("a small guarded move of every axis: signs, scales, stiffness", lasting=True),
    "sign_for": Act("answer for one thing that is not verified, by its whole name", ("what",)),
    "position": Act("to the start of the test, by a bounded ramp", lasting=True),
    "arm": Act(
        "arm a rung: its scenario and the offsets, by their hashes", ("rung", "scenario_hash", "offsets_hash")
    ),
    "run": Act("run the rung that is armed", lasting=True),
    "hold": Act(
        "bring the rig to rest; in slow time the test may be resumed", ("reason",), at_once=True, anybody=True
    ),
    "resume": Act("go on with the rung that is held", at_once=True),
    "stop": Act("stop whatever moves", ("reason",), at_once=True, anybody=True),
    "acknowledge": Act("what has tripped the rig is understood"),
    "unload": Act(
        "unload the specimen to zero force; to a place (m from the zero of the test), signed: by displacement",
        ("to", "signed"),
        lasting=True,
    ),
    "note": Act("words for the report", ("text",), at_once=True),
    "finish": Act("take the offsets again, close the port, end the test", lasting=True),
}
"""By name; those of the session have the names of its methods."""
TERMINAL, ANSWERS = "terminal", "answers"
"""Ways by which an act is asked for, in the record; those of the services are in ``services.py``."""


def places(given: str, names: tuple[str, ...]) -> dict[str, float]:
    """Places by axis, m: a number where there is one axis, else ``axis: number, ...``. Raises ConfigError."""
    found = {}
    for each in given.split(","):
        name, colon, number = each.rpartition(":")
        try:
            found[name.strip() if colon or len(names) > 1 else names[0]] = float(number)
        except ValueError:
            raise ConfigError(f"unload.to = {given!r}: must be a number (m), or axis: number, ...") from None
    return found
