# SPDX-License-Identifier: Apache-2.0
"""A clock that advances only if a test sets it."""

from __future__ import annotations


class Hours:
    def __init__(self) -> None:
        self.now = 0

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        raise AssertionError("a test may not wait")
