# SPDX-License-Identifier: Apache-2.0
"""A session whose port fails can be left, and its record ended."""

from __future__ import annotations

from typing import Any

import pytest

from rths_nodes.core.errors import PortError
from rths_nodes.laboratory.ports.simulator import Simulator


@pytest.mark.parametrize("fails_in", ["disarm_watchdog", "safe"])
def test_a_rig_that_cannot_be_reached_is_given_back(
    walk: Any, monkeypatch: pytest.MonkeyPatch, fails_in: str
) -> None:
    w, words, closed = walk(), "port 'bench' at 10.0.0.2:8000: the connection was reset", Simulator.close
    w.refer()
    given_back: list[Simulator] = []

    def cut(self: Simulator) -> None:
        raise PortError(words)

    def close(self: Simulator) -> None:
        given_back.append(self)
        closed(self)

    monkeypatch.setattr(Simulator, fails_in, cut)
    monkeypatch.setattr(Simulator, "close", close)
    w.session.close()
    assert given_back
    assert w.session.drive.alarm == words
