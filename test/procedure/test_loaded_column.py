# SPDX-License-Identifier: Apache-2.0
"""A session of a column under an axial load, whose force loop the nodes close."""

from __future__ import annotations

import benches
from rig_walk import Walk

from rths_nodes.loop.supervision.states import State


def test_a_column_is_unloaded_after_a_rung_under_load() -> None:
    """Its loop had led it elsewhere than what is sent in m: no act moved the rig any more, with 500 kN on it."""
    w = Walk(benches.COLUMN.scenario(False), [])
    w.refer()
    w.session.check()
    for name in w.session.clearance.unsigned():
        w.session.sign_for(name)
    w.session.position()
    assert w.climb("g").outcome == "finished"
    for _ in range(benches.COLUMN.settles):
        w.session.drive.tick()
    assert {act: w.session.possible()[act] for act in ("position", "unload")} == {"position": "", "unload": ""}
    done = w.session.unload()
    assert w.session.state is State.HELD
    assert abs(done.before["load"] - 500e3) < 15e3
    assert abs(done.after["load"]) < 1e3
