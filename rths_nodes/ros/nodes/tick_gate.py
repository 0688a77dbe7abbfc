"""Whether the next tick may run: its Command, trips, requests to stop, and the observers."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.core.durations import SECOND
from rths_nodes.core.samples import Command
from rths_nodes.ros.names import COMPENSATOR, MONITOR
from rths_nodes.ros.nodes.observers import LockstepWindow, SignsOfLife
from rths_nodes.ros.nodes.rig_context import RigContext

LOOK_EVERY_NS = 4_000_000
"""Between two looks at requests to stop and at the observers: a few in the time of a bridge."""


class TickGate:
    """Holds the Command of the next tick, and decides when that tick may run, with or without it.

    ``hear_stops`` carries out requests to stop. After ``patience`` ns without a Command the rig trips.
    """

    def __init__(
        self,
        context: RigContext,
        observers: LockstepWindow | SignsOfLife,
        hear_stops: Callable[[], None],
        patience: int,
    ) -> None:
        self.command: Command | None = None
        """The Command of the next tick, once it is here."""
        self._rig, self._times, self._topics = context.rig, context.times, context.topics
        self._observers, self._hear_stops = observers, hear_stops
        self._patience = patience
        self._now = context.clock.monotonic_ns
        self._next_look = 0

    def take_command(self) -> None:
        """Look for the Command of the next tick; one of a past tick is late, one of a later tick trips the rig."""
        topics, expected = self._topics, self._rig.sample + 1 + self._rig.pause.supplied
        while (found := topics.receive("command", topics.codec.unpack_command)) is not None:
            command: Command = found[0]
            if command.sample == expected:
                self.command = command
                self._times.answered()
                return
            if command.sample > expected:
                self._rig.trip(f"Command {command.sample} came where {expected} was expected")
                return
            self._rig.late_command(command)

    def hand_over(self) -> Command | None:
        """The Command of the tick that begins now; None when there is none."""
        command, self.command = self.command, None
        return command

    @property
    def done(self) -> set[str]:
        """The observers that were done, or have given up, while the rig still moved."""
        return self._observers.done

    @property
    def deadline(self) -> int | None:
        """When the Command that is waited for is late, ns; the first one never is: nothing moves yet."""
        if self.command is not None or not self._rig.sample:
            return None
        return self._times.deadline

    def may_tick(self, interrupted: bool = False) -> bool:
        """True when the next tick has its Command, or goes without one, and nobody is too far behind.

        ``interrupted``: the operator wants the rig to stop and hold.
        """
        rig = self._rig
        self.hear_trips()
        self._look()
        if interrupted:
            rig.hold("interrupted")
        if rig.stopping or rig.stop_due or rig.pause.goes_on or self._overdue():
            return True
        if self.command is None:
            waited = self._times.waited
            if waited > self._patience:
                rig.trip(f"no Command {rig.sample + 1} for {waited / SECOND:.2g} s")
            return False
        return self._observers.follow()

    def hear_trips(self) -> None:
        """Trip the rig when another node asks for it."""
        rig = self._rig
        for trip in self._topics.heard("trip"):
            # what happens to other nodes after the end does not change the test, a breach found in it does
            if not rig.ended or trip["source"] == MONITOR or trip["sample"]:
                sample = self._observers.effective(trip["effective_sample"])
                # a limit of an axis is one of the rig, whoever was the first to find the breach
                ours = trip["source"] == COMPENSATOR and trip["sample"]
                rig.trip(trip["reason"] if ours else f"{trip['source']}: {trip['reason']}", sample)

    def stop_asked(self) -> bool:
        """True when the test has to stop, by what was heard until now."""
        self.hear_trips()
        return self._rig.stop_request is not None

    def _look(self) -> None:
        now = self._now()
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY_NS
            self._hear_stops()
            self._observers.look(now)

    def _overdue(self) -> bool:
        deadline = self.deadline
        if deadline is None or self._now() < deadline:
            return False
        self.take_command()  # it may have come while this process did not run
        return True
