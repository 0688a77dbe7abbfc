# SPDX-License-Identifier: Apache-2.0
"""A rig behind a port of another package, with the session of ``udp`` over TCP, is commissioned."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_bench import EmulatedBench
from tcp_port import Relay

from rths_nodes.core import registry
from rths_nodes.loop.commissioning import CLOSED, FAILED, KILLED, SIGN
from rths_nodes.loop.scenario import files
from rths_nodes.procedure.commissioning.rig import Bench
from rths_nodes.procedure.commissioning.trials import TRIALS, commission, scenario_of

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)


def forget() -> None:
    importlib.invalidate_caches()
    registry._entry_points.cache_clear()
    registry._table.cache_clear()
    registry._load.cache_clear()


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedBench]:
    """An emulated rig that is reached by TCP."""
    site = tmp_path / "site" / "tcp_rig-1.0.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: tcp_rig\nVersion: 1.0\n")
    (site / "entry_points.txt").write_text("[rths_nodes.port]\ntcp = tcp_port:TcpPort\n")
    monkeypatch.syspath_prepend(str(site.parent))
    forget()
    made = EmulatedBench(tmp_path)
    relay = Relay(made.emulator.address)
    text = made.file.read_text()
    line = next(line for line in text.splitlines() if line.startswith("port: "))
    there = line.replace("type: udp", "type: tcp").replace(str(made.emulator.address[1]), str(relay.port))
    made.file.write_text(text.replace(line, there))
    made.bench = Bench(scenario_of(files.load_rig(made.file)), False, made, patience=1.0)
    yield made
    relay.close()
    made.close()
    forget()


@pytest.mark.parametrize(("part", "cause"), [("signs", SIGN), ("closed", CLOSED), ("killed", KILLED)])
def test_a_rig_behind_another_transport_is_commissioned(far: EmulatedBench, part: str, cause: str) -> None:
    rows = commission(far.bench, {part: TRIALS[part]})
    assert {row.cause for row in rows} == {cause}
    assert [row for row in rows if row.verdict == FAILED] == []
    assert len(far.bench.build) == 16
