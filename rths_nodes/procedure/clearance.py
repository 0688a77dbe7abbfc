# SPDX-License-Identifier: Apache-2.0
"""Obstacles before the start of a test: findings of the checks, and unverified items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.loop.scenario.judgement.rule import Judgement
from rths_nodes.procedure.offsets import Offsets
from rths_nodes.procedure.records import NOT_VERIFIED, SIGNED, ProcedureRecord

CHANNELS = ("displacement", "force")


@dataclass(frozen=True)
class ToSign:
    """An item to sign for: ``name``, ``words`` for people; a scale has ``axis`` and the sensor's ``channel``."""

    name: str
    words: str
    axis: str
    channel: str = ""

    @property
    def called(self) -> tuple[str, ...]:
        """Names for it in an answers file; an axis means all of its scales."""
        return (self.name, self.words, self.axis) if self.channel else (self.name, self.words)


class Clearance:
    """Findings of the checks in ``record`` on the ``axes`` of the rig, and signatures of the operator.

    ``cautions`` concern numbers of scenario and rig file; one signature lasts.
    """

    def __init__(
        self, record: ProcedureRecord, axes: Mapping[str, RigAxis], cautions: Sequence[Judgement] = ()
    ) -> None:
        self._record, self._axes = record, axes
        self.cautions = [ToSign(each.name, each.words, "") for each in cautions]
        self._offsets: Offsets | None = None
        self._signed: set[str] = set()
        """Words of the signed items."""

    def begin(self, offsets: Offsets) -> None:
        """Discard checks and signatures, after new ``offsets`` or before a new check."""
        self._offsets = offsets
        self._record.checks = {}
        self._signed = self.signed_cautions

    def signed_before(self, earlier: Mapping[str, str]) -> None:
        """Take over signatures of an earlier test on the same rig: words and person."""
        for each in self.cautions:
            if each.words in earlier and each.words not in self._signed:
                self._signed.add(each.words)
                self._record.deviations.append(f"{each.words}: signed for {earlier[each.words]}")

    @property
    def signed_cautions(self) -> set[str]:
        return self._signed.intersection(caution.words for caution in self.cautions)

    def barred(self) -> str:
        """Return why the rig must not move to the start, or empty."""
        checks = self._record.checks
        if not checks:
            return "the axes were not checked"
        found = [words for each in checks.values() for words in each.findings]
        return "\n".join(
            found + [f"{each.words}: verify it, or sign for it ({each.name})" for each in self.wanting()]
        )

    def unsigned(self) -> list[str]:
        """Return the names of items that are neither verified nor signed for."""
        return [each.name for each in self.wanting()]

    def wanting(self) -> list[ToSign]:
        """Return these items."""
        found = list(self.cautions)
        found += [
            ToSign(f"scale of {channel} of {name}", f"scale of {channel} of {name} not verified", name, channel)
            for name, checks in self._record.checks.items()
            for channel in CHANNELS
            if getattr(checks, f"{channel}_scale") == NOT_VERIFIED
        ]
        found += [
            ToSign(f"stiffness of {name}", words, name)
            for name, checks in self._record.checks.items()
            for words in checks.unlike
        ]
        if self._offsets is not None:
            at_rest = self._offsets.forces_at_rest(self._axes)
            found += [ToSign(f"force at rest of {name}", words, name) for name, words in at_rest.items()]
        return [each for each in found if each.words not in self._signed]

    def meant(self, what: str) -> ToSign:
        """Return the item with exactly this name or these words. Raises ConfigError."""
        wanting = self.wanting()
        meant = next((each for each in wanting if what in (each.name, each.words)), None)
        if meant is None:
            names = "; ".join(each.name for each in wanting)
            raise ConfigError(
                f"sign_for: {what or 'empty'}: is not to be signed for; by its whole name that is: {names}"
            )
        return meant

    def sign(self, what: str, by: str) -> None:
        """Record that the operator signs for ``what``. Raises ConfigError as :meth:`meant`."""
        meant = self.meant(what)
        self._signed.add(meant.words)
        self._record.deviations.append(f"{meant.words}: signed for by {by or 'the operator'}")
        if meant.channel:
            setattr(self._record.checks[meant.axis], f"{meant.channel}_scale", SIGNED)
