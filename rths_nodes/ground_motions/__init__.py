"""Ground motions: an excitation as a function of time, in m/s^2 (or m where it is a prescribed displacement).

``record`` reads a file or a published record, ``sine`` and ``none`` are formulas. The file formats (PEER AT2,
COSMOS and CSMIP V2, columns of text) live in ``readers.py``.
"""

from __future__ import annotations

TABLE: dict[str, str] = {
    "record": "rths_nodes.ground_motions.record:Record",
    "sine": "rths_nodes.ground_motions.waves:Sine",
    "none": "rths_nodes.ground_motions.waves:NoMotion",
}
