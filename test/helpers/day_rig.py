# SPDX-License-Identifier: Apache-2.0
"""The rig of a day in the laboratory: a simulated bench whose specimen wears from test to test.

The computer knows the sound column alone. What stands in the rig has gone through the tests before: it begins each
session as it was left, and only its stiffness tells the operator.
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
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.session import RigSession

AXIS, SCENARIO, SCALE = "story_1", "chen_ricles_2010", 0.52
"""The scale of its ground motion is that of the full test."""
SETS = ("servo_rate=256", "substeps=4", "ground_motion.begin=1.2", "compensator={type: none}")
NOISY = (("range: 275.0", "range: 275.0, noise_rms: 0.002"), ("range: 2000.0", "range: 2000.0, noise_rms: 0.1"))
"""The channels of the bench are perfect; those of a laboratory are not."""
KNOWN_TO = 0.03


@dataclass(frozen=True)
class Column:
    """A degrading column: ``stiffness`` (N/m) up to a ``level`` (m), beyond it ``after`` times that slope."""

    stiffness: float = 7.6e6
    level: float = 0.010
    after: float = 0.5
    damping: float = 0.64e6

    def worn(self, largest: float) -> Column:
        """The same behind an excursion of ``largest`` m: its secant there, and the same envelope beyond.

        Beyond d_0 its force is k d_0 + r k (d - d_0): ``laboratory/specimens/hysteretic.py``.
        """
        if largest <= self.level:
            return self
        share = self.level / largest
        secant = self.stiffness * (share + self.after * (1.0 - share))
        return Column(secant, largest, self.after * self.stiffness / secant, self.damping)

    @property
    def words(self) -> str:
        """The override that puts it into the rig."""
        return (
            f"axes.{AXIS}.specimen={{type: degrading_column, stiffness: {self.stiffness!r}, "
            f"damage_displacement: {self.level!r}, post_damage_ratio: {self.after!r}, damping: {self.damping!r}}}"
        )


def scenario_of(folder: Path, level: float, duration: float, known: float | None, seed: int) -> Scenario:
    """The test at that ``level`` on the rig, whose file says which stiffness (N/m) is ``known``, if one is."""
    text = re.sub(r" +stiffness(_known_to)?: .*\n", "", benches.ONE.rig) + "two_persons: true\n"
    for perfect, noisy in NOISY:
        text = text.replace(perfect, noisy)
    if known is not None:
        lines = f"    stiffness: {known!r}\n    stiffness_known_to: {KNOWN_TO}\n"
        text = text.replace("    small_move:", f"{lines}    small_move:")
    file = folder / "bench.yaml"
    file.write_text(text)
    sets = [*SETS, f"duration={duration}", f"seed={seed}", f"ground_motion.scale={SCALE * level}", Column().words]
    return files.load(SCENARIO, sets, rig=str(file))


class DayWatch(MotionWatch):
    """As MotionWatch; ``largest`` is how far the specimen has truly gone, m."""

    largest = 0.0

    def measured(self, shown: Array, true: Array, force: Array, told: str) -> None:
        self.largest = max(self.largest, float(np.abs(true).max()))
        super().measured(shown, true, force, told)


class LoggedPort(WatchedPort):
    """As WatchedPort; ``rows`` are what its sensors have shown (m, N) since :meth:`logs`."""

    last = (0.0, 0.0)

    def logs(self) -> None:
        """Begin anew, with what was shown last."""
        self.rows = [self.last]

    def read(self) -> Measurement:
        shown = super().read()
        self.last = float(shown.displacement[0]), float(shown.force[0])
        self.rows.append(self.last)
        return shown


def watched(session: RigSession, column: Column) -> LoggedPort:
    """A port of the rig with that ``column``, kept watch over, in the place of the one of ``session``."""
    scenario, drive = session.scenario, session.drive
    limits = scenario.limits.values()
    watch = DayWatch(
        Bounds(np.array([each.deceleration for each in limits]), np.array([benches.SLOW_ERROR]), scenario.dt)
    )
    port = LoggedPort(
        Assembly(override(scenario, [column.words])).port,
        lambda: session.state,
        frozenset(State[name] for name in MOTION),
        np.array([each.velocity for each in limits]) * scenario.dt,
        np.array([each.stroke for each in limits]),
        watch,
    )
    port.logs()
    port.lost = lambda: bool(drive.loss.reason)
    drive.port = port  # type: ignore[assignment]
    return port
