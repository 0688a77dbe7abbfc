# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings of the documentation: Markdown pages, diagrams by Mermaid."""

project = "rths_nodes"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 3
exclude_patterns = ["_build"]
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]  # links to files of the repository; Mermaid
