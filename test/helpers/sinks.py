# SPDX-License-Identifier: Apache-2.0
"""Sink of a loop that keeps commands and measurements."""

from __future__ import annotations

from rths_nodes.core.samples import Command, Measurement


class History:
    """Keeps commands, measurements and true values; ignores targets and states."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.measured: list[Measurement] = []
        self.true: list[Measurement] = []
        self.command, self.measurement, self.truth = self.commands.append, self.measured.append, self.true.append

    def target(self, target: object) -> None: ...

    def state(self, sample: int, values: object) -> None: ...
