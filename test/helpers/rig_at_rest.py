# SPDX-License-Identifier: Apache-2.0
"""A procedure that is led to a state at rest in a process: python rig_at_rest.py RIG_FILE PORT STATE FOLDER

Prints one JSON object a line: each state with its reason and the time (monotonic, s). Ends when its input does.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from rths_nodes.app.procedure.ladder import Ladder
from rths_nodes.app.procedure.procedure_runner import ProcedureRunner, Watch
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.loop.supervision.states import State

SCENARIO = "chen_ricles_2010"
SLOW = ("servo_rate=256", "substeps=3", "duration=1")


def told(state: State, reason: str) -> None:
    """Print a state."""
    print(json.dumps({"at": time.monotonic(), "state": state.name, "reason": reason}), flush=True)


def main(rig: str, port: str, wanted: str, folder: str) -> None:
    """Lead the procedure to the state, and wait."""
    scenario = files.load(SCENARIO, [*SLOW, f"port.port={port}"], rig=rig)
    ladder = Ladder(scenario, ("g",), 0.2, None, realtime=True)
    record = ProcedureRecord("rest", SCENARIO, scenario_hash="", operator="A. Tester", planned=["g"])
    runner = ProcedureRunner(ladder, record, Path(folder), Watch(changed=told))
    session = runner.session
    session.connect()
    if wanted != "CONNECTED":
        session.confirm_offsets(session.take_offsets(0.2).hash, True)
    if wanted not in ("CONNECTED", "REFERENCED"):
        session.check()
        for each in session.clearance.unsigned():
            session.sign_for(each)
        session.position()
    if wanted in ("ARMED", "HELD"):
        assert session.offsets is not None
        step = ladder.step("g")
        session.arm("g", step.scenario, step.hash, session.offsets.hash)
    if wanted == "HELD":
        session.stop("wait")
    print(
        json.dumps({"at": time.monotonic(), "state": f"at rest: {session.state.name}", "reason": ""}), flush=True
    )
    sys.stdin.read()
    print(json.dumps({"at": time.monotonic(), "state": "possible", "reason": session.possible()}), flush=True)
    session.finish()
    session.close()


if __name__ == "__main__":
    main(*sys.argv[1:5])
