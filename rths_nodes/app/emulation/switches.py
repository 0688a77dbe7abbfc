# SPDX-License-Identifier: Apache-2.0
"""Switches of an emulated rig: interlock, pressure and network cable, for a person at the rig."""

from __future__ import annotations

import re
import threading

from rths_nodes.core.errors import ConfigError, show, unknown

INTERLOCK, PRESSURE, CABLE = "interlock", "pressure", "cable"
POSITIONS = {INTERLOCK: ("closed", "open"), PRESSURE: ("off", "low", "high"), CABLE: ("in", "out")}
"""Switch -> its positions."""
_WORDS = re.compile(r"(\w+) +(\w+)(?: *@ *(\+?)(\d{1,9}))?", re.ASCII)


class Switches:
    """Positions of the switches; untouched ones are not in :attr:`position`. Thread-safe."""

    def __init__(self) -> None:
        self.position: dict[str, str] = {}
        self._sample = 0
        self._later: list[tuple[int, str, str]] = []
        self._lock = threading.Lock()

    def turn(self, words: str) -> None:
        """Turn one: ``interlock open``, now; with ``@300`` at sample 300, with ``@+300`` 300 samples later.

        Raises ConfigError.
        """
        found = _WORDS.fullmatch(words.strip())
        if not found:
            raise ConfigError(
                f"{show(words)}: must be SWITCH POSITION, with @SAMPLE or @+SAMPLES behind it or not: {told()}"
            )
        switch, position, later, sample = found.groups()
        if switch not in POSITIONS:
            raise unknown("switch", "switch", switch, POSITIONS)
        if position not in POSITIONS[switch]:
            raise unknown(switch, "position", position, POSITIONS[switch])
        with self._lock:
            if sample is None:
                self.position[switch] = position
            else:
                self._later.append((int(sample) + (self._sample if later else 0), switch, position))

    def at(self, sample: int) -> dict[str, str]:
        """Return the positions at ``sample`` of the current session."""
        with self._lock:
            self._sample = sample
            for each in [row for row in self._later if row[0] <= sample]:
                self._later.remove(each)
                self.position[each[1]] = each[2]
            return dict(self.position)

    def out(self) -> bool:
        return self.position.get(CABLE) == "out"


def told() -> str:
    """Return all switches with their positions, as text."""
    return "; ".join(f"{switch} {' | '.join(positions)}" for switch, positions in POSITIONS.items())
