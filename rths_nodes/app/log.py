"""What the parts of a test say while it goes on, on standard error."""

from __future__ import annotations

import logging


def show_log() -> None:
    """Show what the package logs, from INFO on; what others log stays as it is."""
    log = logging.getLogger("rths_nodes")
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("rths: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
