# SPDX-License-Identifier: Apache-2.0
"""Clearance of a rig to move to the start: findings of its checks, and signatures for open items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rths_nodes.core.errors import ConfigError
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.loop.procedure_record import NOT_VERIFIED, SIGNED, ProcedureRecord
from rths_nodes.loop.scenario.judgement.rule import Judgement
from rths_nodes.procedure.offsets import Offsets

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
        self.cautions = [ToSign(caution.name, caution.words, "") for caution in cautions]
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
        for caution in self.cautions:
            if caution.words in earlier and caution.words not in self._signed:
                self._signed.add(caution.words)
                self._record.deviations.append(f"{caution.words}: signed for {earlier[caution.words]}")

    @property
    def signed_cautions(self) -> set[str]:
        return self._signed.intersection(caution.words for caution in self.cautions)

    def barred(self) -> str:
        """Return why the rig must not move to the start, or empty."""
        checks = self._record.checks
        if not checks:
            return "the axes were not checked"
        findings = [finding for axis in checks.values() for finding in axis.findings]
        return "\n".join(
            findings + [f"{item.words}: verify it, or sign for it ({item.name})" for item in self.wanting()]
        )

    def unsigned(self) -> list[str]:
        """Return the names of items that are neither verified nor signed for."""
        return [item.name for item in self.wanting()]

    def wanting(self) -> list[ToSign]:
        """Return these items."""
        items = list(self.cautions)
        items += [
            ToSign(f"scale of {channel} of {name}", f"scale of {channel} of {name} not verified", name, channel)
            for name, checks in self._record.checks.items()
            for channel in CHANNELS
            if getattr(checks, f"{channel}_scale") == NOT_VERIFIED
        ]
        items += [
            ToSign(f"stiffness of {name}", text, name)
            for name, checks in self._record.checks.items()
            for text in checks.unlike
        ]
        if self._offsets is not None:
            at_rest = self._offsets.forces_at_rest(self._axes)
            items += [ToSign(f"force at rest of {name}", text, name) for name, text in at_rest.items()]
        return [item for item in items if item.words not in self._signed]

    def meant(self, what: str) -> ToSign:
        """Return the item with exactly this name or these words. Raises ConfigError."""
        wanting = self.wanting()
        meant = next((item for item in wanting if what in (item.name, item.words)), None)
        if meant is None:
            names = "; ".join(item.name for item in wanting)
            raise ConfigError(
                f"sign_for: {what or 'empty'}: is not to be signed for; by its whole name that is: {names}"
            )
        return meant

    def sign(self, item: str, by: str) -> None:
        """Record that the operator signs for ``item``. Raises ConfigError as :meth:`meant`."""
        meant = self.meant(item)
        self._signed.add(meant.words)
        self._record.deviations.append(f"{meant.words}: signed for by {by or 'the operator'}")
        if meant.channel:
            setattr(self._record.checks[meant.axis], f"{meant.channel}_scale", SIGNED)
