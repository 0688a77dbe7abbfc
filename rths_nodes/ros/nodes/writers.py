# SPDX-License-Identifier: Apache-2.0
"""Interface of the writer of a recording, passed in because ``ros/`` knows no file formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rths_nodes.ros import names


class Writer(Protocol):
    """Methods of a recording that the recorder needs."""

    def write(self, topic: str, data: bytes, stamp_ns: int) -> None: ...

    def flush_if_due(self) -> None: ...

    def flush(self) -> None: ...

    def fileno(self) -> int: ...

    def close(self, information: dict[str, str]) -> None: ...


class OptionalWriter:
    """A ``writer`` that may fail: ``on_lost`` gets the reason, later messages are dropped."""

    def __init__(self, writer: Writer, on_lost: Callable[[str], None]) -> None:
        self._writer: Writer | None = writer
        self._on_lost = on_lost
        self.fileno = writer.fileno

    def _do(self, name: str, *arguments: object) -> None:
        try:
            if self._writer is not None:
                getattr(self._writer, name)(*arguments)
        except RuntimeError as error:  # a recording that cannot continue
            self._writer = None
            self._on_lost(str(error))

    def write(self, topic: str, data: bytes, stamp_ns: int) -> None:
        self._do("write", topic, data, stamp_ns)

    def flush_if_due(self) -> None:
        self._do("flush_if_due")

    def flush(self) -> None:
        self._do("flush")

    def close(self, information: dict[str, str]) -> None:
        if self._writer is not None:
            self._writer.close(information)


OpenWriter = Callable[[str, list[tuple[str, names.Topic]], dict[str, str]], Writer]
"""Directory, topic names with rows, information -> a recording. Raises ConfigError."""
