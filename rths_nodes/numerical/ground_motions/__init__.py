# SPDX-License-Identifier: Apache-2.0
"""Ground motions: excitations as functions of time, in m/s^2, or in m for a prescribed displacement.

``record`` reads a file or a published record (``readers.py``). All other ground motions are formulas with exact
derivatives; they can also prescribe the displacement of a test without a structure.
"""

from __future__ import annotations

TABLE: dict[str, str] = {
    "record": ".record:Record",
    "sine": ".waves:Sine",
    "harmonic": ".waves:Harmonic",
    "sweep": ".waves:Sweep",
    "fema_461": ".waves:Fema461",
    "aisc_341": ".waves:Aisc341",
    "band_limited_noise": ".waves:BandLimitedNoise",
    "delayed": ".waves:Delayed",
    "none": ".waves:NoMotion",
}
