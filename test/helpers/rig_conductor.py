"""A conductor of a test on the simulated bench, and the acts that lead it to the start."""

from __future__ import annotations

from pathlib import Path

from rths_nodes.app.procedure.conduct import Conductor
from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.loop.procedure.records import ProcedureRecord
from rths_nodes.loop.scenario import files


def conducted(folder: Path) -> Conductor:
    """A short test with the rungs a, d and g, recorded into ``folder``."""
    scenario = files.load("chen_ricles_2010", ["duration=0.3"], rig="bench_simulated")
    ladder = Ladder(scenario, ("a", "d", "g"), 0.3, 2, False)
    return Conductor(ladder, ProcedureRecord("test", scenario.name, "", operator="A. Tester"), folder)


def positioned(conductor: Conductor) -> None:
    """From cold to the start."""
    conductor.do("rehearse")
    conductor.do("connect")
    conductor.do("take_offsets", seconds=0.1)
    assert conductor.taken is not None
    conductor.do("confirm_offsets", hash=conductor.taken.hash, unloaded=True)
    conductor.do("check")
    for name in conductor.session.clearance.unsigned():
        conductor.do("sign_for", what=name)
    conductor.do("position")
