# SPDX-License-Identifier: Apache-2.0
"""Conversion between sample types and CDR bytes, little endian.

A message of bounded arrays has a constant layout once the lengths of its arrays are fixed. One precompiled
``struct`` packs and unpacks the message in about 2 us; rclpy's typed conversion takes 20 us. Padding is zero.
Arrays are read-only.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, methodcaller

from rths_nodes.core.samples import (
    MODE_DISPLACEMENT,
    MODE_FORCE,
    MODE_NOT_TOLD,
    Array,
    Command,
    Measurement,
    Target,
)
from rths_nodes.core.wire.layout import Layout, RunMark

TO_LIST = methodcaller("tolist")
MOTION = ("displacement", "velocity", "acceleration", "exact_acceleration")
DOF = (*MOTION, "external_force", "restoring_force")
OF_TARGET = attrgetter(*DOF, "auxiliary")


class Codec:
    """Converts samples of one rig to bytes and back. Stamps are nanoseconds since the epoch.

    ``n_auxiliary`` is the number of measured auxiliary channels, and ``n_inputs`` the number of auxiliary channels
    of a command. ``n_state`` is the number of the compensator's internal quantities, and ``n_updating`` the number
    of quantities of model updating. The last ``n_force`` axes may be controlled by force. Messages of runs other
    than ``run`` are refused. ``unpack_target``, ``unpack_command`` and ``unpack_measurement`` return the sample
    and the stamp of a message.
    """

    def __init__(
        self,
        n_dof: int,
        n_axes: int,
        n_state: int,
        n_auxiliary: int = 0,
        n_inputs: int = 0,
        run: RunMark | None = None,
        n_force: int = 0,
        n_updating: int = 0,
    ) -> None:
        self.run = run = run or RunMark()
        axes = dict.fromkeys(("control_mode", "target", "command", "displacement", "force"), n_axes)
        self.sizes = (n_dof, n_axes, n_state, n_auxiliary, n_inputs)
        self._displacement, self._not_told = bytes([MODE_DISPLACEMENT]) * n_axes, bytes([MODE_NOT_TOLD]) * n_axes
        self._n_moved = n_axes - n_force
        self._target = Layout("Target", dict.fromkeys(DOF, n_dof) | {"auxiliary": n_inputs}, run)
        self._command = Layout("Command", axes | {"auxiliary": n_inputs}, run)
        self._measurement = Layout("Measurement", axes | {"auxiliary": n_auxiliary}, run)
        self._state = Layout("CompensatorState", {"values": n_state}, run)
        self._updating = Layout("CompensatorState", {"values": n_updating}, run)
        self.unpack_target = self._target.reader(_target)
        self.unpack_command = self._command.reader(self._as_command)
        self.unpack_measurement = self._measurement.reader(self._as_measurement)

    @property
    def largest(self) -> int:
        return max(
            layout.size for layout in (self._target, self._command, self._measurement, self._state, self._updating)
        )

    def pack_target(self, target: Target, stamp: int) -> bytes:
        head = (target.step, target.flags, *target.energies.tolist())
        return self._target.pack(stamp, head, list(map(TO_LIST, OF_TARGET(target))))

    def pack_command(self, command: Command, stamp: int) -> bytes:
        arrays = map(TO_LIST, (command.target, command.command, command.auxiliary))
        modes = command.control_mode or self._displacement
        return self._command.pack(stamp, (command.sample, command.flags), (modes, *arrays))

    def _as_command(self, head: tuple[int, ...], arrays: list[Array], octets: list[bytes]) -> Command:
        (sample, flags), (target, command, auxiliary), (modes,) = head, arrays, octets
        if modes == self._displacement:
            return Command(sample, target, command, auxiliary, flags)
        self._check_modes(modes)
        return Command(sample, target, command, auxiliary, flags, modes)

    def _check_modes(self, modes: bytes) -> None:
        n = self._n_moved
        if n == len(modes):
            raise ValueError(f"Command: control_mode {list(modes)}: must be displacement on all axes")
        moved, loaded = modes[:n], modes[n:]
        if moved != self._displacement[:n] or set(loaded) - {MODE_DISPLACEMENT, MODE_FORCE}:
            raise ValueError(
                f"Command: control_mode {list(modes)}: must be displacement on the first {n} axes, "
                "and displacement or force on the other axes"
            )

    def pack_measurement(self, measured: Measurement, stamp: int) -> bytes:
        arrays = map(TO_LIST, (measured.displacement, measured.force, measured.command, measured.auxiliary))
        modes = measured.control_mode or self._not_told
        head = (measured.sample, measured.flags, measured.hydraulics, measured.interlock)
        return self._measurement.pack(stamp, head, (modes, *arrays))

    def _as_measurement(self, head: tuple[int, ...], arrays: list[Array], octets: list[bytes]) -> Measurement:
        (sample, flags, hydraulics, interlock), (modes,) = head, octets
        displacement, force, command, auxiliary = arrays
        shown_modes = b"" if modes == self._not_told else modes
        return Measurement(
            sample, displacement, force, command, auxiliary, flags, shown_modes, hydraulics, interlock
        )

    def pack_updating(self, values: Sequence[float], sample: int, flags: int, stamp: int) -> bytes:
        return self._updating.pack(stamp, (sample, flags), (values,))

    def pack_state(self, values: Sequence[float], sample: int, flags: int, stamp: int) -> bytes:
        return self._state.pack(stamp, (sample, flags), (values,))


def _target(head: tuple[int, ...], arrays: list[Array], octets: list[bytes]) -> Target:
    step, flags = head
    energies, x, v, a, exact, external, restoring, auxiliary = arrays
    return Target(step, x, v, a, exact, external, restoring, auxiliary, flags, energies)
