# SPDX-License-Identifier: Apache-2.0
"""Parameters and sections of a Params class as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from rths_nodes.core.errors import join
from rths_nodes.core.parameters import declared
from rths_nodes.core.validation import to_data

ANY = "NAME"


@attrs.frozen
class Row:
    name: str
    kind: str
    unit: str
    bound: str
    default: str
    doc: str


def table(cls: type) -> list[Row]:
    rows = []
    for name, spec in declared(cls).items():
        if spec.required:
            default = "required"
        elif isinstance(spec.default, attrs.Factory):  # type: ignore[arg-type]
            default = "its defaults" if spec.kind == "section" else "none"
        elif isinstance(spec.default, Mapping):
            default = str(spec.default["type"])
        else:
            default = "-" if spec.default is None else str(to_data(spec.default))
        kind = spec.kind if not spec.family else f"section: {spec.family}"
        rows.append(Row(name, kind, spec.unit or "-", spec.bound or "-", default, spec.doc))
    return rows


def sections(cls: type, path: str = "") -> Iterator[tuple[str, type]]:
    """Yield path (``axes.NAME.limits``) and class of each section without a type in ``cls``, outermost first."""
    for name, spec in declared(cls).items():
        if spec.cls is not None:
            section = join(path, name) + (f".{ANY}" if spec.kind == "sections" else "")
            yield section, spec.cls
            yield from sections(spec.cls, section)
