"""What a recording says about the run that it is of, whoever records it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from rths_nodes.core import yaml_text
from rths_nodes.core.version import __version__
from rths_nodes.loop.scenario.schema import Scenario


def information(
    scenario: Scenario, run_id: str, host: str, pace: str, faults: Iterable[str] = (), actuator_nodes: str = ""
) -> dict[str, str]:
    """The scenario, what the run was called, where and with which version it began now.

    ``actuator_nodes`` is empty on the host embedded, which has no nodes.
    """
    layout = {"actuator_nodes": actuator_nodes} if actuator_nodes else {}
    injected = " ".join(faults)
    return {
        "scenario": yaml_text.dump(scenario.data()),
        "scenario_hash": scenario.shared_hash(run_id),
        "run_id": run_id,
        "host": host,
        "pace": pace,
        **layout,
        "version": __version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **({"faults": injected} if injected else {}),
    }
