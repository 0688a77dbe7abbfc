"""The parameters of a Params class as the rows of a page."""

from __future__ import annotations

import attrs

from rths_nodes.core.parameters import spec_of
from rths_nodes.core.strict import as_data


@attrs.frozen
class Row:
    """One line of the parameter page."""

    name: str
    kind: str
    unit: str
    bound: str
    default: str
    doc: str


def table(cls: type) -> list[Row]:
    """The parameters of a Params class, one row each, as ``rths params`` prints them."""
    rows = []
    for field in attrs.fields(cls):
        spec = spec_of(field)
        if field.default is attrs.NOTHING:
            default = "required"
        elif isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]
            default = "its defaults" if spec.kind == "section" else "none"
        else:
            default = "-" if field.default is None else str(as_data(field.default))
        if spec.default_data is not None:
            default = str(spec.default_data["type"])
        kind = spec.kind if not spec.family else f"section: {spec.family}"
        rows.append(Row(field.name, kind, spec.unit or "-", spec.bound or "-", default, spec.doc))
    return rows
