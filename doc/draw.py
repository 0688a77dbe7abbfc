# SPDX-License-Identifier: Apache-2.0
"""Draw the diagrams of the documents: python doc/draw.py MERMAID_JS

Each ``mermaid`` block becomes ``doc/pictures/PAGE-DIGEST.svg``, which the site shows in its place without network
or script. A picture belongs to the text with its digest, so that one of an older text is missed. Needed are
chromium and the file ``dist/mermaid.min.js`` of mermaid's npm package, version 11.
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
    *(
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ),
    *("--disable-component-update", "--disable-sync", "--virtual-time-budget=20000", "--dump-dom"),
)


def digest(text: str) -> str:
    """Return the digest of a diagram's ``text``, part of the name of its picture."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def diagrams() -> Iterator[tuple[str, str]]:
    """Yield the name of the picture and the text of every diagram."""
    for page in PAGES:
        for text in re.findall(r"^```mermaid\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            yield f"{page.stem.lower()}-{digest(text)}.svg", text


def drawn(text: str, library: Path, folder: Path) -> str:
    """Return the diagram as SVG. Raises RuntimeError if the browser draws none."""
    page = folder / "page.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><pre id=source>{html.escape(text)}</pre><div id=drawn></div>"
        f"<script src='{library.resolve().as_uri()}'></script><script>mermaid.initialize({SETTINGS});"
        "mermaid.render('diagram', document.getElementById('source').textContent)"
        ".then(made => document.getElementById('drawn').innerHTML = made.svg);</script>",
        encoding="utf-8",
    )
    command = [*CHROMIUM, f"--user-data-dir={folder / 'profile'}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    match = re.search(r'<div id="drawn">(<svg.*</svg>)</div>', done.stdout, re.S)
    if match is None:
        raise RuntimeError(f"mermaid draws nothing of: {text[:200]}")
    size = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', match[1])
    wide, high = (f"{float(number):.0f}" for number in size.groups()) if size else ("100%", "100%")
    sized = match[1].replace('width="100%"', f'width="{wide}" height="{high}"', 1)
    return sized.replace("<br>", "<br/>").replace("&nbsp;", "&#160;")


def main(library: Path) -> None:
    """Draw diagrams without a picture, and delete pictures of former texts."""
    PICTURES.mkdir(exist_ok=True)
    wanted = dict(diagrams())
    for path in PICTURES.glob("*.svg"):
        if path.name not in wanted:
            path.unlink()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in wanted.items():
            if not (PICTURES / name).exists():
                (PICTURES / name).write_text(drawn(text, library, Path(folder)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
