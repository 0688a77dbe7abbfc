"""Which Commands may be published by who makes them."""

from __future__ import annotations

from collections.abc import Iterable

from rths_nodes.core.samples import Command, Measurement
from rths_nodes.loop.supervision.limits import LimitCheck


class OutgoingCommands:
    """Knows which Commands may be published: those within the limits of ``check`` from one to the next.

    The rig checks them again: what goes on between here and there is not known.
    """

    def __init__(self, check: LimitCheck) -> None:
        self._check = check
        self._sent: Iterable[float] = ()
        self._modes = b""

    def start(self, measured: Measurement) -> None:
        """Measurement 0: what the rig stands at, from where the first Command sets out."""
        self._sent, self._modes = measured.command.tolist(), b""

    def refusal(self, command: Command) -> str:
        """Why ``command`` must not be published; empty when it may, and then the next one follows it."""
        reason = self._check.command(command, self._sent, self._modes)
        if not reason:
            self._sent, self._modes = command.command.tolist(), command.control_mode
        return reason
