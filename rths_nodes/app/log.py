"""What the parts of a test say while it goes on, on standard error."""

from __future__ import annotations

import logging
import sys


class _OnStandardError(logging.Handler):
    """Writes to what standard error is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"rths: {record.getMessage()}", file=sys.stderr, flush=True)


def show_log() -> None:
    """Show what the package logs, from INFO on; what others log stays as it is."""
    log = logging.getLogger("rths_nodes")
    if not log.handlers:
        log.addHandler(_OnStandardError())
        log.setLevel(logging.INFO)
