"""What bars a rig from its way to the start: findings of the checks, and what nobody has verified."""

from __future__ import annotations

from collections.abc import Mapping

from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.loop.procedure.offsets import Offsets
from rths_nodes.loop.procedure.records import NOT_VERIFIED, SIGNED, ProcedureRecord

CHANNELS = ("displacement", "force")


class Clearance:
    """What the checks of ``record`` have found of the ``axes`` of the rig, and what the operator answers for."""

    def __init__(self, record: ProcedureRecord, axes: Mapping[str, RigAxis]) -> None:
        self._record, self._axes = record, axes
        self._offsets: Offsets | None = None
        self._signed: set[str] = set()

    def begin(self, offsets: Offsets) -> None:
        """New ``offsets``, or a new check: nothing is checked yet, and nothing signed for."""
        self._offsets = offsets
        self._record.checks = {}
        self._signed.clear()

    def barred(self) -> str:
        """Why the rig must not leave its place, in words; empty where it may."""
        checks = self._record.checks
        if not checks:
            return "the axes were not checked"
        found = [words for each in checks.values() for words in each.findings]
        return "\n".join(found + [f"{what}: verify it, or sign for it" for what in self.unsigned()])

    def unsigned(self) -> list[str]:
        """What is neither verified nor signed for."""
        wanting = [
            _scale(channel, name)
            for name, checks in self._record.checks.items()
            for channel in CHANNELS
            if getattr(checks, f"{channel}_scale") == NOT_VERIFIED
        ]
        if self._offsets is not None:
            wanting += self._offsets.forces_at_rest(self._axes).values()
        return [what for what in wanting if what not in self._signed]

    def sign(self, what: str, by: str) -> None:
        """The operator answers for ``what``: its words, or the name of its axis. Raises ConfigError for others."""
        wanting = self.unsigned()
        meant = [
            words
            for words in wanting
            if what and (what in words or f" of {what} " in words or words.startswith(f"axes.{what}:"))
        ]
        if not meant:
            raise ConfigError(f"{what or 'empty'}: is not to be signed for; that is: {'; '.join(wanting)}")
        for words in meant:
            self._signed.add(words)
            self._record.deviations.append(f"{words}: signed for by {by or 'the operator'}")
        for name, checks in self._record.checks.items():
            for channel in CHANNELS:
                if _scale(channel, name) in meant:
                    setattr(checks, f"{channel}_scale", SIGNED)


def _scale(channel: str, axis: str) -> str:
    return f"scale of {channel} of {axis} not verified"
