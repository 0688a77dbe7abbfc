# SPDX-License-Identifier: Apache-2.0
"""Conditions for moving a rig: its offsets, the findings of its checks, and signatures for open items.

Offsets are the sensor readings at the zero of the test. Displacements and commands of a test are relative to the
offsets. Forces are relative to the offsets only if the operator has declared the specimen unloaded. Tares (offsets
that are subtracted) are bounded, because a large tare indicates a wrong sensor zero. For displacements, the bound
applies to the difference from the controller's active command or, if that command cannot be read, to the
displacement itself.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rths_nodes.core.errors import ConfigError, Problems
from rths_nodes.core.samples import Array, Measurement
from rths_nodes.laboratory.calibration import RigAxis
from rths_nodes.loop.procedure_record import NOT_VERIFIED, SIGNED, AxisOffsets, OffsetsRecord, ProcedureRecord
from rths_nodes.loop.scenario.judgement.rule import Judgement
from rths_nodes.loop.supervision.handover import Tares
from rths_nodes.procedure.motions import averages

LARGEST_TARE = 0.02
"""Largest tare, as a fraction of the channel's range."""
AT_REST = 0.005
"""Largest untared force at rest that is not reported, as a fraction of the load cell's range."""


@dataclass(frozen=True)
class Offsets:
    """Offsets of the axes ``names``: mean and scatter (rms) over ``seconds`` s, arrays ``(n_axes,)`` in m and N.

    ``active`` is the active command of the controller, or NaN if it cannot be read. ``held`` is the command at
    which the rig was held. ``unloaded`` is true if the operator has declared the specimen unloaded.
    """

    names: tuple[str, ...]
    time: str
    seconds: float
    displacement: Array
    displacement_scatter: Array
    force: Array
    force_scatter: Array
    active: Array
    held: Array
    unloaded: bool
    confirmed: bool

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        rows: Sequence[Measurement],
        active: Array | None,
        held: Array,
        time: str,
        seconds: float,
    ) -> Offsets:
        read = np.full(len(held), math.nan) if active is None else np.array(active, float)
        sent = np.array(held, float)
        means = averages(rows, "displacement", "force")
        return cls(tuple(names), time, seconds, active=read, held=sent, unloaded=False, confirmed=False, **means)

    @property
    def hash(self) -> str:
        numbers = (self.displacement, self.force, self.active, self.held)
        everything = [self.names, self.time, *(array.tolist() for array in numbers)]
        return hashlib.sha256(json.dumps(everything).encode()).hexdigest()[:16]

    def confirm(self, unloaded: bool, axes: Mapping[str, RigAxis], simulated: bool) -> Offsets:
        """Return confirmed offsets. Raises ConfigError for too large a tare, or for zero scatter on a real rig."""
        problems, readable = Problems(), np.isfinite(self.active)
        from_command = self.displacement - np.where(readable, self.active, 0.0)
        for index, (name, axis) in enumerate(axes.items()):
            difference = f"measured displacement {'minus active command' if readable[index] else 'at rest'}"
            force = self.force[index] if unloaded else 0.0
            for channel, unit, sensor, text, offset, scatter in (
                ("displacement", "m", "sensor", difference, from_command[index], self.displacement_scatter[index]),
                ("force", "N", "load cell", "force of the unloaded specimen", force, self.force_scatter[index]),
            ):
                if scatter == 0.0 and not simulated:
                    problems.append(
                        f"axes.{axis.name}.{channel} of the rig file: the scatter measured in {self.seconds:g} s "
                        f"is 0 {unit} rms, but a real sensor has noise. Check that the sensor is connected and "
                        "that its converter runs"
                    )
                bound = LARGEST_TARE * getattr(axis, channel).range_si
                if not abs(offset) <= bound:
                    problems.append(
                        f"axes.{name}: {text} = {offset:.6g} {unit}: must be within +- {bound:.6g} {unit} "
                        f"({LARGEST_TARE:.0%} of the {sensor}'s range) to be tared. Set the zero of the {sensor}"
                    )
        problems.refuse()
        return replace(self, unloaded=unloaded, confirmed=True)

    def forces_at_rest(self, axes: Mapping[str, RigAxis]) -> dict[str, str]:
        """Return remarks, by axis, on untared forces at rest above ``AT_REST`` times the load cell's range."""
        remarks: dict[str, str] = {}
        for (name, axis), force in zip(axes.items(), self.force.tolist(), strict=True):
            span = axis.force.range_si
            if not (self.unloaded or abs(force) <= AT_REST * span):
                remarks[name] = (
                    f"axes.{name}: the load cell shows {force:.6g} N at rest, which is {force / span:.2%} of its "
                    "range. Unload the specimen first; or, to tare the load cell, confirm the offsets and state "
                    "that the specimen is unloaded"
                )
        return remarks

    def tares(self, reach: Array | None = None) -> Tares:
        """Return the zero of the test. ``reach`` ``(n_axes,)`` m is the largest distance from this zero."""
        force = self.force if self.unloaded else np.zeros(len(self.force))
        free = np.full(len(self.names), math.inf)
        return Tares(self.displacement, force, self.held, free if reach is None else reach)

    def record(self) -> OffsetsRecord:
        columns = (self.displacement, self.displacement_scatter, self.force, self.force_scatter, self.active)
        values = np.array(columns).T.tolist()
        rows = [AxisOffsets(x, x_rms, f, f_rms, active, self.unloaded) for x, x_rms, f, f_rms, active in values]
        axes = dict(zip(self.names, rows, strict=True))
        return OffsetsRecord(self.time, self.seconds, axes, self.hash, self.confirmed)


CHANNELS = ("displacement", "force")


@dataclass(frozen=True)
class ToSign:
    """Item that the operator must sign for, with its ``name`` and its text ``words``.

    ``axis`` is empty if the item is a caution. ``channel`` is empty unless the item is the scale of a sensor.
    """

    name: str
    words: str
    axis: str
    channel: str = ""

    @property
    def called(self) -> tuple[str, ...]:
        """Names by which an answers file signs for the item. The name of an axis covers all of its scales."""
        return (self.name, self.words, self.axis) if self.channel else (self.name, self.words)


class Clearance:
    """Stores in ``record`` the findings of the checks on the rig's ``axes``, and the operator's signatures.

    ``cautions`` concern values in scenario and rig file. Signatures for cautions remain valid after a new check.
    """

    def __init__(
        self, record: ProcedureRecord, axes: Mapping[str, RigAxis], cautions: Sequence[Judgement] = ()
    ) -> None:
        self._record, self._axes = record, axes
        self.cautions = [ToSign(caution.name, caution.words, "") for caution in cautions]
        self._offsets: Offsets | None = None
        self._signed: set[str] = set()

    def begin(self, offsets: Offsets) -> None:
        self._offsets = offsets
        self._record.checks = {}
        self._signed = self.signed_cautions

    def signed_before(self, earlier: Mapping[str, str]) -> None:
        """Adopt signatures for cautions from earlier tests. ``earlier`` maps texts of cautions to signatures."""
        for caution in self.cautions:
            if caution.words in earlier and caution.words not in self._signed:
                self._signed.add(caution.words)
                self._record.deviations.append(f"{caution.words}: signed for {earlier[caution.words]}")

    @property
    def signed_cautions(self) -> set[str]:
        return self._signed.intersection(caution.words for caution in self.cautions)

    def barred(self) -> str:
        if not self._record.checks:
            return "the axes were not checked"
        reasons = [finding for axis in self._record.checks.values() for finding in axis.findings]
        reasons += [f"{item.words}: verify this item, or sign for it ({item.name})" for item in self.wanting()]
        return "\n".join(reasons)

    def unsigned(self) -> list[str]:
        return [item.name for item in self.wanting()]

    def wanting(self) -> list[ToSign]:
        items, checks = [*self.cautions], self._record.checks
        for channel, (name, axis) in ((channel, row) for row in checks.items() for channel in CHANNELS):
            if getattr(axis, f"{channel}_scale") == NOT_VERIFIED:
                item = f"scale of {channel} of {name}"
                items.append(ToSign(item, f"{item} not verified", name, channel))
        for name, axis in checks.items():
            items += [ToSign(f"stiffness of {name}", text, name) for text in axis.unlike]
        if self._offsets is not None:
            at_rest = self._offsets.forces_at_rest(self._axes)
            items += [ToSign(f"force at rest of {name}", text, name) for name, text in at_rest.items()]
        return [item for item in items if item.words not in self._signed]

    def sign(self, name: str, by: str) -> None:
        """Sign for the open item whose name or text is ``name``. Raises ConfigError if there is no such item."""
        item = next((item for item in self.wanting() if name in (item.name, item.words)), None)
        if item is None:
            names = "; ".join(self.unsigned())
            raise ConfigError(
                f"sign_for = {name or 'empty'}: must be the full name of an open item. The open items are {names}"
            )
        self._signed.add(item.words)
        self._record.deviations.append(f"{item.words}: signed for by {by or 'the operator'}")
        if item.channel:
            setattr(self._record.checks[item.axis], f"{item.channel}_scale", SIGNED)
