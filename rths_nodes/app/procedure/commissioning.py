"""The commissioning of the rig of a test, and why it does not let the rungs that move be armed, before any act."""

from __future__ import annotations

from datetime import datetime

from rths_nodes.loop.procedure.commissioning import Commissioning, barred
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.recording import commissioning


def found(scenario: Scenario, rig: str) -> tuple[Commissioning | None, str]:
    """The commissioning beside the file ``rig``, and in words why it bars the rungs that move; empty: it does not.

    Simulators and emulators need none. Raises ConfigError for a file that is not one.
    """
    if not rig or Assembly(scenario).port.simulated:
        return None, ""
    known = commissioning.of_rig(files.locate(rig, files.RIG))
    return known, barred(known, scenario, None, datetime.now().astimezone())
