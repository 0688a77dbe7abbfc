"""What a port tells of its controller, in words for an operator and the report."""

from __future__ import annotations

from rths_nodes.core.samples import (
    HYDRAULICS_HIGH,
    HYDRAULICS_LOW,
    HYDRAULICS_OFF,
    INTERLOCK_CLOSED,
    INTERLOCK_OPEN,
    MODE_DISPLACEMENT,
    MODE_FORCE,
)
from rths_nodes.loop.procedure.drive import RigDrive

NOT_TOLD = "not told"
_PRESSURES = {HYDRAULICS_OFF: "off", HYDRAULICS_LOW: "low", HYDRAULICS_HIGH: "high"}
_INTERLOCKS = {INTERLOCK_CLOSED: "closed", INTERLOCK_OPEN: "open"}
_MODES = {MODE_DISPLACEMENT: "displacement", MODE_FORCE: "force"}


def told_of(drive: RigDrive) -> dict[str, str]:
    """Hydraulics, interlock, control mode and active command, as the port has read them last."""
    measured, active = drive.measured, drive.port.active_command
    modes = [_MODES.get(mode, NOT_TOLD) for mode in measured.control_mode]
    commands = "cannot be read" if active is None else ", ".join(f"{value:.6g} m" for value in active.tolist())
    return {
        "hydraulics": _PRESSURES.get(measured.hydraulics, NOT_TOLD),
        "interlock": _INTERLOCKS.get(measured.interlock, NOT_TOLD),
        "control mode": ", ".join(modes) or NOT_TOLD,
        "active command": commands,
    }
