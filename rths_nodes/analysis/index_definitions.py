# SPDX-License-Identifier: Apache-2.0
"""Names and definitions of all indices, for tables, figures and pages."""

from __future__ import annotations

from typing import NamedTuple

from rths_nodes.analysis.published_indices import TRUE
from rths_nodes.analysis.study_table import AMPLITUDE, index_unit, words_of
from rths_nodes.analysis.units import MM, MM2, MS


class Kind(NamedTuple):
    """Definition of a recorded index.

    ``key`` is the name in the metrics, ``name`` the name in studies, or empty if studies do not have the index.
    Tables display the value times ``factor`` in ``unit``. ``signed`` is true if the sign is meaningful.
    """

    title: str
    key: str
    factor: float
    unit: str
    meaning: str
    name: str = ""
    signed: bool = False


AXIS_INDICES: tuple[Kind, ...] = (
    Kind(
        "Largest control error",
        "max_error_m",
        MM,
        "mm",
        "max |target − measured| (Chen & Ricles 2010, Table 2)",
        "max_error_mm",
    ),
    Kind(
        "Largest control error, relative (J3)",
        "max_error_percent",
        1.0,
        "%",
        "max |target − measured| as a share of the largest target; missing if the target hardly moved "
        "(Chen & Ricles 2010, Table 2; J3 of Wang et al.)",
        "J3",
    ),
    Kind(
        "Error norm (J2)",
        "error_norm_percent",
        1.0,
        "%",
        "RMS of the control error as a share of the RMS of the target (Chen & Ricles 2010, Eq. 15; J2 of "
        "Wang et al.)",
        "J2",
    ),
    Kind(
        "Delay (J1)",
        "delay_s",
        MS,
        "ms",
        "time shift at which the measurement correlates most with the target over the whole test; the fastest "
        "motion has the largest weight (J1 of Wang et al.). Positive: late; missing above monitor.longest_delay",
        "J1",
        signed=True,
    ),
    Kind(
        "Tracking indicator at the end",
        "tracking_indicator_m2",
        MM2,
        "mm²",
        "TI = (A − TA)/2, area enclosed in the synchronisation plot (Chen & Ricles 2010, Eqs. 8–9b); "
        "grows while the actuator lags",
    ),
    Kind(
        "Amplitude ratio (FEI)",
        "fei_amplitude",
        1.0,
        "",
        "frequency evaluation index of the whole record: ratio of measured to target, averaged over the spectrum "
        "with the power of the target as weight (Guo et al. 2014)",
        "fei_amplitude",
    ),
    Kind(
        "Delay (FEI)",
        "fei_delay_s",
        MS,
        "ms",
        "phase of the frequency evaluation index, converted to a delay at the equivalent frequency",
        "fei_delay_ms",
        signed=True,
    ),
    Kind(
        "Equivalent frequency (FEI)",
        "fei_frequency_hz",
        1.0,
        "Hz",
        "mean frequency of the target, weighted by its power",
    ),
)
TEST_INDICES: tuple[Kind, ...] = (
    Kind(
        "Energy error HSEM",
        "hsem_percent",
        1.0,
        "%",
        "energy added by the tracking error, as a share of the input energy, at the end of the test "
        "(Mosqueda et al. 2007; Chen & Ricles 2010, Fig. 11). Positive: lag",
        "hsem_percent",
        signed=True,
    ),
    *(
        Kind(title, f"{name}_displacement_m", MM, "mm", meaning, f"{name}_displacement_mm", signed=True)
        for title, name, meaning in (
            ("Largest displacement", "max", "maximum displacement of the degree of freedom that moved most"),
            ("Smallest displacement", "min", "minimum displacement of the degree of freedom that moved most"),
            (
                "Displacement at the end",
                "end",
                "last displacement of the degree of freedom that moved most, including permanent displacement",
            ),
        )
    ),
)
RESPONSE = {
    "response": ("Displacement", "displacement"),
    "acceleration": ("Absolute acceleration", "acceleration"),
}
"""Title and key of the response errors (%), by prefix of the name. The name of a degree of freedom follows."""


class Definition(NamedTuple):
    title: str
    meaning: str
    signed: bool = False


DEFINITIONS: dict[str, Definition] = {
    "_".join(words_of(kind.name)): Definition(kind.title[0].lower() + kind.title[1:], kind.meaning, kind.signed)
    for kind in (*AXIS_INDICES, *TEST_INDICES)
    if kind.name
} | {
    "response": Definition(
        "displacement error",
        "RMS of the difference from the displacement of the whole structure (computed in one piece, without "
        "actuators), divided by the RMS of that displacement (Phillips & Spencer 2012, Table 3.1)",
    ),
    "acceleration": Definition(
        "acceleration error",
        "RMS of the difference from the absolute acceleration of the whole structure, divided by the RMS of that "
        "acceleration. An absolute acceleration is relative to the ground, plus the ground acceleration",
    ),
    "tracking_delay": Definition(
        "tracking delay",
        "lag at which the measured displacement m correlates most with the target y: 0 to 49 samples "
        "(Silva et al. 2020), or -49 to 49 samples with two axes (Condori Uribe et al. 2023)",
        signed=True,
    ),
    "signed_delay": Definition(
        "tracking delay",
        "time shift at the peak of the cross-correlation. Positive: late",
        signed=True,
    ),
    "noise_floor": Definition("noise floor", "rms tracking error due to sensor noise alone"),
    "tracking_rms": Definition(
        "tracking error, rms", "100 std(m - y) / std(y), where m is measured and y is the target"
    ),
    "tracking_peak": Definition("tracking error, peak", "100 max|m - y| / max|y|"),
    "rms": Definition(
        "response error, rms",
        "100 std(m - r) / std(r) of a floor or story, where r is the reference structure, computed in one "
        "piece, and m is the numerical substructure (on floor 1: as measured)",
    ),
    "peak": Definition("response error, peak", "100 max|m - r| / max|r|"),
    "node_delay": Definition(
        "node delay", "tracking delay of the driven node relative to the numerical substructure", signed=True
    ),
    "node_rms": Definition(
        "node error, rms",
        "100 std(m - y) / std(y) of the driven node, where m is its measured and y its computed displacement",
    ),
    "node_peak": Definition(
        "node error, peak",
        "100 max|m - y| / max|y| of the driven node, where m is its measured and y its computed displacement",
    ),
    "reference_rms": Definition(
        "node error to the reference, rms",
        "100 std(m - r) / std(r) of the driven node, where m is its measured and r its reference displacement",
    ),
    "reference_peak": Definition(
        "node error to the reference, peak",
        "100 max|m - r| / max|r| of the driven node, where m is its measured and r its reference displacement",
    ),
}
"""Definitions by the beginning of an index name. Axis or floor, unit and ``_true`` may follow in the name."""
RANGE = "_range"


def definition(name: str) -> Definition:
    """Return the definition of an index. The title of an undefined quantity is derived from its ``name``."""
    base = name.removesuffix(TRUE)
    stem = max((key for key in DEFINITIONS if f"{base}_".startswith(f"{key}_")), key=len, default="")
    entry = DEFINITIONS.get(stem, Definition("", ""))
    suffix = [word for word in words_of(base[len(stem) :]) if word]
    if not stem:
        quantity = " ".join(suffix)
        ranged = name.endswith(RANGE)
        return Definition(quantity, "largest minus smallest value during the test" if ranged else "")
    title = ", ".join(filter(None, (entry.title, " ".join(suffix), "true displacement" if base != name else "")))
    return entry._replace(title=title)


def magnitude_title(name: str) -> str:
    unit, entry = index_unit(name), definition(name)
    title = f"{entry.title} ({unit})" if unit else entry.title
    if name.startswith(AMPLITUDE):
        return f"magnitude of {title} minus 1"
    return f"magnitude of {title}" if entry.signed else title


def definitions(names: tuple[str, ...]) -> list[tuple[str, str, str, str]]:
    return [(name, row.title, index_unit(name), row.meaning) for name in names for row in [definition(name)]]
