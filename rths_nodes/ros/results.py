"""What a run on the node hosts comes to, gathered from the nodes' summaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rths_nodes.safety import State


@dataclass
class Result:
    """How a test ended: last state and reason, last sample, final numbers, exit code, and what it ran on."""

    state: State = State.IDLE
    reason: str = ""
    sample: int = 0
    numbers: dict[str, float] = field(default_factory=dict)
    exit_code: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, numbers: Mapping[str, float]) -> None:
        """The summary of one node."""
        self.numbers |= numbers

    def section(self, name: str) -> dict[str, Any]:
        """``metrics``, ``timing`` or ``compensator``, nested again; numbered keys become lists."""
        nested: dict[str, Any] = {}
        for path, value in self.numbers.items():
            head, *keys = path.split(".")
            if head != name:
                continue
            place = nested
            for key in keys[:-1]:
                place = place.setdefault(key, {})
            place[keys[-1]] = value
        listed: dict[str, Any] = _listed(nested)
        return listed


def _listed(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    if entry and all(key.isdigit() for key in entry):
        return [_listed(entry[key]) for key in sorted(entry, key=int)]
    return {key: _listed(value) for key, value in entry.items()}
