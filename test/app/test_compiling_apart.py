# SPDX-License-Identifier: Apache-2.0
"""Work in a child whose memory ends with it, and where it is not done there."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rths_nodes.app.compiling.apart import Watch, done_apart

pytestmark = pytest.mark.usefixtures("own_threads")


def test_what_it_writes_is_there_and_what_it_holds_is_not(tmp_path: Path) -> None:
    held: list[int] = []

    def work() -> None:
        held.append(1)
        (tmp_path / "pid").write_text(str(os.getpid()), encoding="utf-8")

    assert done_apart(work)
    assert held == []
    assert (tmp_path / "pid").read_text(encoding="utf-8") != str(os.getpid())


def fails() -> None:
    raise MemoryError


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("work", [fails, killed])
def test_what_does_not_end_well_is_told(work: Callable[[], None], capfd: pytest.CaptureFixture[str]) -> None:
    assert not done_apart(work)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("kind", "done"), [(threading.Thread, False), (Watch, True)])
def test_beside_a_thread_that_may_hold_a_lock_nothing_is_forked(kind: type[threading.Thread], done: bool) -> None:
    over = threading.Event()
    other = kind(target=over.wait)
    other.start()
    try:
        assert done_apart(lambda: None) is done
    finally:
        over.set()
        other.join()


def test_interrupted_it_leaves_no_child_behind(tmp_path: Path) -> None:
    def work() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        (tmp_path / "pid").write_text(str(os.getpid()), encoding="utf-8")
        os.kill(os.getppid(), signal.SIGINT)
        time.sleep(600)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for _ in range(50):  # in one of a hundred the signal came before it was known whom to end
            with pytest.raises(KeyboardInterrupt):
                done_apart(work)
            with pytest.raises(ProcessLookupError):
                os.kill(int((tmp_path / "pid").read_text(encoding="utf-8")), 0)
    finally:
        signal.signal(signal.SIGINT, before)
