# SPDX-License-Identifier: Apache-2.0
"""Printable sheet about the commissioning of a rig; it is a draft until two persons have signed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rths_nodes.analysis.report.document import template, write_page
from rths_nodes.analysis.report.procedure import moment
from rths_nodes.analysis.units import DASH
from rths_nodes.core.version import __version__
from rths_nodes.loop.commissioning import NOT_TRIED, VOID, Commissioning, CommissioningRow
from rths_nodes.loop.scenario.schema import REAL_RIG


def write_sheet(result: Commissioning, path: Path) -> None:
    write_page(path, render(result))


def render(result: Commissioning) -> str:
    badge = "FAILED" if result.failed else "DRAFT" if result.unsigned else "PASSED"
    not_tried = _names(row for row in result.rows if row.verdict == NOT_TRIED)
    across = result.rig_kind if result.rig_kind != REAL_RIG else ""
    contents: dict[str, object] = {
        "result": result,
        "title": f"Commissioning of {result.rig}",
        "badge": f"{badge}, {len(not_tried)} not tried" if not_tried and badge == "PASSED" else badge,
        "invalid": badge != "PASSED",
        "kind": {"FAILED": "bad", "DRAFT": "unknown"}.get(badge, "good"),
        "across": across,
        "facts": _facts(result, result.valid_until if badge == "PASSED" and not across else ""),
        "trials": _trials(result),
        "failed": _names(result.failed),
        "not_tried": not_tried,
        "signed": moment(result.date),
        "void": VOID,
        "valid_until": result.valid_until or DASH,
        "version": result.versions.get("rths_nodes", __version__),
        "dash": DASH,
    }
    return template("commissioning.html.j2").render(contents)


def _names(rows: Iterable[CommissioningRow]) -> list[str]:
    return [f"{row.cause}, {row.what}" for row in rows]


def _facts(result: Commissioning, valid_until: str) -> dict[str, str]:
    facts = {
        "Rig": result.rig,
        "Description": result.description,
        "Kind": result.rig_kind,
        "Commissioned": moment(result.date),
        "Valid until": valid_until,
        "Servo-controller": result.controller,
        "Port, receiver build": ", ".join(filter(None, (result.port, result.build))),
        "Rig file, hash": result.rig_hash,
    }
    return {name: value or DASH for name, value in facts.items()}


def _trials(result: Commissioning) -> Iterator[tuple[str, str, list[CommissioningRow]]]:
    last = ""
    for cause in dict.fromkeys(row.cause for row in result.rows):
        proves = result.proves.get(cause, "")
        yield cause, proves if proves != last else "", [row for row in result.rows if row.cause == cause]
        last = proves
