# SPDX-License-Identifier: Apache-2.0
"""The definitions of message types as they stand in a recording: a reader needs nothing else."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import PACKAGE, prefixes, resource
from rths_nodes.core.wire import layout

_WITHOUT_ROS = {
    "builtin_interfaces/Time": "int32 sec\nuint32 nanosec\n",
    "std_msgs/Header": "builtin_interfaces/Time stamp\nstring frame_id\n",
}
"""Definitions that our messages are made of, for a recording that is made where ROS 2 is not installed."""
_TYPE = re.compile(r"(\w+)/(?:msg/)?(\w+)")
_NESTED = re.compile(r"^\s*(?P<type>(?:[a-z]\w*/)?[A-Z]\w*)(?:\[[^\]]*\])?\s+\w+", re.MULTILINE)


def definition(kind: str) -> str:
    """The text of the message type and of all types in it, as MCAP wants it (``ros2msg``).

    Raises ConfigError for a type that is not installed.
    """
    texts: dict[str, str] = {}
    waiting = [kind]
    while waiting:
        package, name = _split(waiting.pop(0))
        key = f"{package}/{name}"
        if key not in texts:
            texts[key] = _text(package, name)
            nested = (match["type"] for match in _NESTED.finditer(texts[key]))
            waiting += [found if "/" in found else f"{package}/{found}" for found in nested]
    (_, first), *others = texts.items()
    return "".join([first, *(f"\n{layout.SEPARATOR}\nMSG: {key}\n{text}" for key, text in others)])


def type_hash(kind: str) -> str:
    """The hash of a message type (``RIHS01_...``) as its package was installed; empty when it was not."""
    package, name = _split(kind)
    file = _installed(package, f"{name}.json")
    hashes = json.loads(file.read_text(encoding="utf-8"))["type_hashes"] if file else []
    return next((str(entry["hash_string"]) for entry in hashes if entry["type_name"] == kind), "")


def _split(kind: str) -> tuple[str, str]:
    match = _TYPE.fullmatch(kind)
    if not match:
        raise ConfigError(f"{kind}: not a message type like {PACKAGE}/msg/Measurement")
    return match[1], match[2]


def _text(package: str, name: str) -> str:
    if package == PACKAGE and _installed(package, f"{name}.msg"):
        return layout.definition(name)
    if file := _installed(package, f"{name}.msg"):
        return file.read_text(encoding="utf-8")
    if text := _WITHOUT_ROS.get(f"{package}/{name}"):
        return text
    raise ConfigError(f"{package}/msg/{name}: definition not installed; source the workspace that has it")


def _installed(package: str, file: str) -> Path | None:
    if package == PACKAGE:
        with contextlib.suppress(FileNotFoundError):
            return resource("msg", file)
        return None
    places = (prefix / "share" / package / "msg" / file for prefix in prefixes())
    return next((place for place in places if place.is_file()), None)
