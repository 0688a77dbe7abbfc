# SPDX-License-Identifier: Apache-2.0
"""Rig of a day in the laboratory: a simulated bench whose specimen degrades from test to test.

The scenario contains the sound column only. The column in the rig begins each session in the state left by the
earlier tests; the operator knows only its stiffness.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import benches
import numpy as np
from motion_watch import MOTION, Bounds, MotionWatch
from watched_port import WatchedPort

from rths_nodes.core.samples import Array, Measurement
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.session import RigSession

AXIS, SCENARIO, SCALE = "story_1", "chen_ricles_2010", 0.52
"""The scale of its ground motion is that of the full test."""
SETS = ("servo_rate=256", "substeps=4", "ground_motion.begin=1.2", "compensator={type: none}")
NOISY = (("range: 275.0", "range: 275.0, noise_rms: 0.002"), ("range: 2000.0", "range: 2000.0, noise_rms: 0.1"))
"""Noise on the channels, which the bench does not have."""
KNOWN_TO = 0.03


@dataclass(frozen=True)
class Column:
    """A degrading column: ``stiffness`` (N/m) up to a ``level`` (m), ``after`` times that slope beyond it."""

    stiffness: float = 7.6e6
    level: float = 0.010
    after: float = 0.5
    damping: float = 0.64e6

    def worn(self, largest: float) -> Column:
        """Column after an excursion of ``largest`` m: secant stiffness up to it, the same envelope beyond.

        Beyond d_0 the force is k d_0 + r k (d - d_0): ``laboratory/specimens/hysteretic.py``.
        """
        if largest <= self.level:
            return self
        share = self.level / largest
        secant = self.stiffness * (share + self.after * (1.0 - share))
        return Column(secant, largest, self.after * self.stiffness / secant, self.damping)

    @property
    def words(self) -> str:
        """Override that puts the column into the rig."""
        return (
            f"axes.{AXIS}.specimen={{type: degrading_column, stiffness: {self.stiffness!r}, "
            f"damage_displacement: {self.level!r}, post_damage_ratio: {self.after!r}, damping: {self.damping!r}}}"
        )


def scenario_of(folder: Path, level: float, duration: float, known: float | None, seed: int) -> Scenario:
    """Test at a ``level`` on the rig; its file contains the ``known`` stiffness (N/m), if any."""
    text = re.sub(r" +stiffness(_known_to)?: .*\n", "", benches.ONE.rig) + "two_persons: true\n"
    for perfect, noisy in NOISY:
        text = text.replace(perfect, noisy)
    if known is not None:
        keys = f"    stiffness: {known!r}\n    stiffness_known_to: {KNOWN_TO}\n"
        text = text.replace("    small_move:", f"{keys}    small_move:")
    file = folder / "bench.yaml"
    file.write_text(text)
    sets = [*SETS, f"duration={duration}", f"seed={seed}", f"ground_motion.scale={SCALE * level}", Column().words]
    return files.load(SCENARIO, sets, rig=str(file))


class DayWatch(MotionWatch):
    """MotionWatch that stores the ``largest`` true displacement of the specimen, m."""

    largest = 0.0

    def measured(self, shown: Array, true: Array, force: Array, tick: str) -> None:
        self.largest = max(self.largest, float(np.abs(true).max()))
        super().measured(shown, true, force, tick)


class LoggedPort(WatchedPort):
    """WatchedPort that stores the readings (m, N) since :meth:`logs` as ``rows``."""

    last = (0.0, 0.0)

    def logs(self) -> None:
        """Clear the rows, except for the last one."""
        self.rows = [self.last]

    def read(self) -> Measurement:
        shown = super().read()
        self.last = float(shown.displacement[0]), float(shown.force[0])
        self.rows.append(self.last)
        return shown


def watched(session: RigSession, column: Column) -> LoggedPort:
    """Replace the port of ``session`` by a watched one with a ``column`` in the rig, and return it."""
    scenario, drive = session.scenario, session.drive
    limits = scenario.limits.values()
    watch = DayWatch(
        Bounds(np.array([limit.deceleration for limit in limits]), np.array([benches.SLOW_ERROR]), scenario.dt)
    )
    port = LoggedPort(
        Assembly(override(scenario, [column.words])).port,
        lambda: session.state,
        frozenset(State[name] for name in MOTION),
        np.array([limit.velocity for limit in limits]) * scenario.dt,
        np.array([limit.stroke for limit in limits]),
        watch,
    )
    port.logs()
    port.lost = lambda: bool(drive.loss.reason)
    drive.port = port  # type: ignore[assignment]
    return port
