# SPDX-License-Identifier: Apache-2.0
"""Restoring forces of the numerical substructure, of a mass or of a story as a function of the drift."""

from __future__ import annotations

TABLE = {
    "linear": ".linear:Linear",
    "bouc_wen": ".bouc_wen:BoucWen",
    "bilinear": ".bilinear:Bilinear",
    "elastic_plastic": ".bilinear:ElasticPlastic",
    "degrading_bouc_wen": ".degrading_bouc_wen:DegradingBoucWen",
}
