# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration: Markdown pages, pictures of diagrams (``doc/draw.py``), and the Python API."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from docutils.nodes import Node, paragraph, reference
from docutils.parsers.rst import Directive
from docutils.parsers.rst.directives.images import Image

DOC = Path(__file__).resolve().parent
sys.path[:0] = [str(DOC), str(DOC.parent)]
from draw import digest  # noqa: E402

from rths_nodes import core  # noqa: E402
from rths_nodes.core.version import __version__  # noqa: E402

for name in core.__all__:  # load lazy attributes, because Sphinx does not
    setattr(core, name, getattr(core, name))

project = "rths_nodes"
copyright = "the contributors, Apache-2.0"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build"]

myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]
myst_fence_as_directive = ["mermaid"]

autodoc_member_order = "bysource"
autodoc_preserve_defaults = False  # the signatures of rths_nodes.run and load are generated from the options
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

# rosdoc2 has its own environment, which may lack Furo.
html_theme = "furo" if importlib.util.find_spec("furo") else "alabaster"
html_title = f"rths_nodes {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False

PROJECT_PAGES = {path.name for path in (DOC / "project").iterdir()}
"""Pages of the parent folder that the site also contains."""
CODE = r"^```.*?^```$|^    [^\n]*$|`[^`\n]+`"
LINK = r"\[([^\]]+)\]\(((?!\w+:)[^)#\s]+)(#[^)\s]+)?\)"


class Mermaid(Directive):
    """Directive that shows the picture that ``doc/draw.py`` has drawn from the same text."""

    has_content = True

    def run(self) -> list[Node]:
        pictures = list((DOC / "pictures").glob(f"*-{digest(chr(10).join(self.content))}.svg"))
        if len(pictures) != 1:
            raise self.error("this diagram has no picture: python doc/draw.py MERMAID_JS")
        source, options = f"/pictures/{pictures[0].name}", {"alt": "diagram", "class": ["diagram"]}
        context = self.lineno, self.content_offset, "", self.state, self.state_machine
        image = Image("image", [source], options, self.content[:0], *context).run()
        root = "../" * self.state.document.settings.env.docname.count("/")
        link = reference("", "", *image, refuri=f"{root}_images/{pictures[0].name}", internal=True)
        return [paragraph("", "", link)]


def adapt_links(app: Any, page: str, source: list[str]) -> None:
    """Replace links to files outside the site by their text, and redirect links to pages of the parent folder."""
    folder, text = (DOC / page).parent, source[0]
    original = DOC.parent / f"{page.removeprefix('project/')}.md"
    if page.startswith("project/") and original.is_file():
        folder, text = DOC.parent, original.read_text(encoding="utf-8")
        text = re.sub(r'src="doc/', 'src="../', text)

    def link(match: re.Match[str]) -> str:
        if not match[2]:  # code
            return match[0]
        label, target, anchor = match[1], folder / match[2], match[3] or ""
        path = target.resolve().relative_to(DOC.parent)
        if str(path) in PROJECT_PAGES:
            path = Path("doc", "project", path)
        elif (target.suffix == ".md" and path.parts[0] != "doc") or not target.is_file():
            return label
        root = "../" * (page.count("/") + 1)
        return f"[{label}]({root}{path}{anchor})".replace("../doc/", "", 1)

    source[0] = re.sub(f"{CODE}|{LINK}", link, text, flags=re.M | re.S)


ARRAY = "~numpy.ndarray[tuple[~typing.Any, ...], ~numpy.dtype[~numpy.float64]]"


def shorten_signature(
    app: Any, kind: str, name: str, target: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Show arrays as ``Array``, and classes without their signature, which their docstring describes."""
    if kind == "class":
        return "", None
    if signature is None:
        return None
    return signature.replace(ARRAY, "Array"), (returns or "").replace(ARRAY, "Array") or None


def setup(app: Any) -> None:
    """Register the directive and the callbacks."""
    app.connect("autodoc-process-signature", shorten_signature)
    app.add_directive("mermaid", Mermaid)
    app.connect("source-read", adapt_links)
