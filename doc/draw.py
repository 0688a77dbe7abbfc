# SPDX-License-Identifier: Apache-2.0
"""Draw the diagrams of the pages: python doc/draw.py MERMAID_JS

Each ``mermaid`` block becomes ``doc/pictures/PAGE-DIGEST.svg``, which the site shows without network access or
scripts. The digest identifies the text, so that an outdated picture is detected. The script needs chromium, and
the file ``dist/mermaid.min.js`` of the npm package mermaid, version 11.
"""

from __future__ import annotations

import hashlib
import html
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

DOC = Path(__file__).resolve().parent
PICTURES = DOC / "pictures"
PAGES = (DOC.parent / "README.md", *sorted(DOC.glob("*.md")), DOC / "ros" / "graph.md")
SETTINGS = (
    "{startOnLoad: false, theme: 'neutral', htmlLabels: false, flowchart: {htmlLabels: false},"
    " deterministicIds: true, fontFamily: 'Helvetica, Arial, sans-serif'}"
)
CHROMIUM = (
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=20000",
    "--dump-dom",
)


def digest(text: str) -> str:
    """Return the digest of a diagram's ``text``, which the name of its picture contains."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def diagrams() -> Iterator[tuple[str, str]]:
    """Yield the name of the picture and the text of each diagram."""
    for page in PAGES:
        for text in re.findall(r"^```mermaid\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            yield f"{page.stem.lower()}-{digest(text)}.svg", text


def draw(text: str, library: Path, folder: Path) -> str:
    """Return the diagram as SVG. Raises RuntimeError if mermaid does not draw it."""
    page = folder / "page.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><pre id=source>{html.escape(text)}</pre><div id=drawn></div>"
        f"<script src='{library.resolve().as_uri()}'></script><script>mermaid.initialize({SETTINGS});"
        "mermaid.render('diagram', document.getElementById('source').textContent)"
        ".then(made => document.getElementById('drawn').innerHTML = made.svg);</script>",
        encoding="utf-8",
    )
    command = [*CHROMIUM, f"--user-data-dir={folder / 'profile'}", page.as_uri()]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    match = re.search(r'<div id="drawn">(<svg.*</svg>)</div>', result.stdout, re.S)
    if match is None:
        raise RuntimeError(f"mermaid could not draw: {text[:200]}")
    size = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', match[1])
    width, height = (f"{float(number):.0f}" for number in size.groups()) if size else ("100%", "100%")
    picture = match[1].replace('width="100%"', f'width="{width}" height="{height}"', 1)
    return picture.replace("<br>", "<br/>").replace("&nbsp;", "&#160;")


def main(library: Path) -> None:
    """Draw the missing pictures, and delete outdated ones."""
    PICTURES.mkdir(exist_ok=True)
    texts = dict(diagrams())
    for path in PICTURES.glob("*.svg"):
        if path.name not in texts:
            path.unlink()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            if not (PICTURES / name).exists():
                (PICTURES / name).write_text(draw(text, library, Path(folder)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
