# SPDX-License-Identifier: Apache-2.0
"""Process that runs a procedure to a state at rest: python rig_at_rest.py RIG_FILE PORT STATE FOLDER

Prints one JSON object per line: each state with its reason and the monotonic time, s. Ends with its input.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import files

SCENARIO = "chen_ricles_2010"
SLOW = ("servo_rate=256", "substeps=3", "duration=1")


def report(state: str, reason: object) -> None:
    print(json.dumps({"at": time.monotonic(), "state": state, "reason": reason}), flush=True)


def main(rig: str, port: str, wanted: str, folder: str) -> None:
    """Run the procedure to the state, and wait for the end of the input."""
    scenario = files.load(SCENARIO, [*SLOW, f"port.port={port}"], rig=rig)
    ladder = Ladder(scenario, ("g",), 0.2, None, realtime=True)
    record = ProcedureRecord("rest", SCENARIO, scenario_hash="", operator="A. Tester", planned=["g"])
    runner = ProcedureRunner(ladder, record, Path(folder))
    runner.changed = lambda state, reason: report(state.name, reason)
    session = runner.session
    session.connect()
    if wanted != "CONNECTED":
        session.confirm_offsets(session.take_offsets(0.2).hash, True)
    if wanted not in ("CONNECTED", "REFERENCED"):
        session.check()
        for name in session.clearance.unsigned():
            session.sign_for(name)
        session.position()
    if wanted in ("ARMED", "HELD"):
        step = ladder.step("g")
        session.arm("g", step.scenario, step.hash, session.offsets.hash)
    if wanted == "HELD":
        session.stop("wait")
    report(f"at rest: {session.state.name}", "")
    sys.stdin.read()
    report("possible", session.possible())
    session.finish()
    session.close()


if __name__ == "__main__":
    main(*sys.argv[1:5])
