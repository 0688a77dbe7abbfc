# SPDX-License-Identifier: Apache-2.0
"""Templates of pages, without matplotlib."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from rths_nodes.core.version import __version__

NO_SAFETY = "The software stop is not a safety function."


def write_page(path: Path, text: str) -> None:
    """Write the text of a page, and make its folder. Raises OSError."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


@cache
def template(name: str) -> Template:
    """Load a template of the folder ``templates``; it escapes text."""
    places = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(
        loader=places, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["css"] = css_text
    environment.globals |= {"no_safety": NO_SAFETY, "version": __version__}
    return environment.get_template(name)


def css_text(text: str) -> str:
    """Return ``text`` as a CSS string; characters that could end string or style sheet are escaped."""
    return '"' + re.sub(r"[^A-Za-z0-9 _.,:-]", lambda match: f"\\{ord(match[0]):x} ", text) + '"'
