# SPDX-License-Identifier: Apache-2.0
"""Tables of all parameters of a test with unit and meaning, the axes side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from rths_nodes.analysis.report.tables import Row, Table
from rths_nodes.analysis.units import exact
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError, join
from rths_nodes.core.parameters import Spec, declared, is_params, type_of
from rths_nodes.core.validation import to_data
from rths_nodes.loop.scenario.schema import Scenario

LEFT_OUT = ("version", "name", "description", "cases", "scatter")
"""Keys of a scenario that are not parameters of the run: shown in the head of the page, or for other runs."""
SECTIONS = ("component", "section")
"""Kinds of parameters with separate tables."""


class Section(NamedTuple):
    """A section of a scenario: title, type with its description (or empty), parameters."""

    title: str
    type: str
    meaning: str
    table: Table


def sections(scenario: Scenario) -> list[Section]:
    """Return all parameters by section; parameters of the axes have a column per axis."""
    test: list[Row] = []
    found: list[Section] = []
    for name, spec in declared(type(scenario)).items():
        built, title = getattr(scenario, name), name.replace("_", " ").capitalize()
        if name == "axes":
            axes = {axis: list(_inside(built[axis])) for axis in built}
            title = "Axes" if len(axes) > 1 else f"Axis {next(iter(axes))}"
            found.append(Section(title, "", "", _side_by_side(axes)))
        elif spec.kind in SECTIONS and built is not None:
            kind = _type("", built, spec.family) if spec.family else Row("", [""], "")
            found.append(Section(title, kind.values[0], kind.meaning, _one_column([*_inside(built)])))
        elif spec.kind not in SECTIONS and name not in LEFT_OUT:
            test.append(_plain(name, built, spec))
    return [Section("Test", "", "", _one_column(test)), *found]


def _one_column(rows: list[Row]) -> Table:
    return Table("Parameter", ["Value"], rows)


def _side_by_side(axes: Mapping[str, list[Row]]) -> Table:
    names = list(dict.fromkeys(row.title for rows in axes.values() for row in rows))
    parts = [name.partition(".")[0] for name in names]
    names.sort(key=lambda name: parts.index(name.partition(".")[0]))  # what only another axis has, beside its like
    by_axis = [{row.title: row for row in rows} for rows in axes.values()]
    found = []
    for name in names:
        known = [rows[name] for rows in by_axis if name in rows]
        meanings = dict.fromkeys(row.meaning.rstrip(".") for row in known)
        values = [rows[name].values[0] if name in rows else exact(None) for rows in by_axis]
        unit = next((row.unit for row in known if row.unit), "")
        found.append(Row(name, values, unit, "; ".join(filter(None, meanings))))
    return Table("Parameter", list(axes) if len(axes) > 1 else ["Value"], found)


def _type(name: str, component: object, family: str) -> Row:
    """Return the type of a component, with its description if it is installed."""
    words = ""
    with suppress(ConfigError):
        words = registry.description(family, type_of(component))
    return Row(name, [type_of(component)], "", words)


def _inside(built: object, path: str = "") -> Iterator[Row]:
    for key, spec in declared(type(built)).items():
        value, name = getattr(built, key), join(path, key)
        named = isinstance(value, Mapping) and spec.kind in ("sections", "components")
        parts = {join(name, inner): entry for inner, entry in value.items()} if named else {name: value}
        for place, part in parts.items():
            if is_params(part):
                if type_of(part):
                    yield _type(place, part, spec.family)
                yield from _inside(part, place)
            else:
                yield _plain(place, part, spec)


def _plain(name: str, value: object, spec: Spec) -> Row:
    unit = "" if spec.unit == "1" else spec.unit.replace("^2", "²")
    return Row(name, [exact(to_data(value))], unit if value is not None else "", spec.doc)
