"""Sample types <-> bytes on the wire (CDR, little endian).

A message of bounded arrays has a constant layout once the lengths of its arrays are fixed: one precompiled
``struct`` packs and unpacks it (about 2 us, where the typed conversion of rclpy takes 20). Padding is zero. Values
are copied out of the buffer, so that arrays are aligned; they are read-only, because several nodes of one process
may have them.
"""

from __future__ import annotations

from collections.abc import Sequence

from rths_nodes.core.durations import SECOND
from rths_nodes.core.samples import Array, Command, Measurement, Target
from rths_nodes.core.wire.layout import Layout, stamp_of


class Codec:
    """Sample types of one rig <-> bytes. Stamps are nanoseconds since the epoch.

    ``n_auxiliary`` counts the measured auxiliary channels, ``n_inputs`` those of a command, ``n_state`` the
    compensator's inner numbers.
    """

    def __init__(self, n_dof: int, n_axes: int, n_state: int, n_auxiliary: int = 0, n_inputs: int = 0) -> None:
        dof = (
            "displacement",
            "velocity",
            "acceleration",
            "exact_acceleration",
            "external_force",
            "restoring_force",
        )
        axes = dict.fromkeys(("control_mode", "target", "command", "displacement", "force"), n_axes)
        self.sizes = (n_dof, n_axes, n_state, n_auxiliary, n_inputs)
        self._modes = [0] * n_axes
        self._target = Layout("Target", dict.fromkeys(dof, n_dof) | {"auxiliary": n_inputs})
        self._command = Layout("Command", axes | {"auxiliary": n_inputs})
        self._measurement = Layout("Measurement", axes | {"auxiliary": n_auxiliary})
        self._state = Layout("CompensatorState", {"values": n_state})

    def pack_target(self, target: Target, stamp: int) -> bytes:
        arrays = (
            target.displacement,
            target.velocity,
            target.acceleration,
            target.exact_acceleration,
            target.external_force,
            target.restoring_force,
            target.auxiliary,
        )
        return self._target.pack((*stamp_of(stamp), target.step, target.flags), [a.tolist() for a in arrays])

    def unpack_target(self, data: bytes) -> tuple[Target, int]:
        (sec, nanosec, step, flags), arrays = self._target.unpack(data)
        x, v, a, exact, external, restoring, auxiliary = arrays
        target = Target(step, x, v, a, exact, external, restoring, auxiliary, flags)
        return target, sec * SECOND + nanosec

    def pack_command(self, command: Command, stamp: int) -> bytes:
        arrays = (self._modes, command.target.tolist(), command.command.tolist(), command.auxiliary.tolist())
        return self._command.pack((*stamp_of(stamp), command.sample, command.flags), arrays)

    def unpack_command(self, data: bytes) -> tuple[Command, int]:
        (sec, nanosec, sample, flags), (target, command, auxiliary) = self._command.unpack(data)
        return Command(sample, target, command, auxiliary, flags), sec * SECOND + nanosec

    def pack_measurement(self, measured: Measurement, stamp: int) -> bytes:
        arrays = (
            self._modes,
            measured.displacement.tolist(),
            measured.force.tolist(),
            measured.command.tolist(),
            measured.auxiliary.tolist(),
        )
        return self._measurement.pack((*stamp_of(stamp), measured.sample, measured.flags), arrays)

    def unpack_measurement(self, data: bytes) -> tuple[Measurement, int]:
        (sec, nanosec, sample, flags), arrays = self._measurement.unpack(data)
        displacement, force, command, auxiliary = arrays
        measured = Measurement(sample, displacement, force, command, auxiliary, flags)
        return measured, sec * SECOND + nanosec

    def pack_state(self, sample: int, values: Sequence[float], flags: int, stamp: int) -> bytes:
        return self._state.pack((*stamp_of(stamp), sample, flags), (values,))

    def unpack_state(self, data: bytes) -> tuple[int, Array, int]:
        (sec, nanosec, sample, _), (values,) = self._state.unpack(data)
        return sample, values, sec * SECOND + nanosec
