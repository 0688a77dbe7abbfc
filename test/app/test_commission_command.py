# SPDX-License-Identifier: Apache-2.0
"""Commissioning of emulated rigs: at a terminal as in doc/first_test.md, and over TCP."""

from __future__ import annotations

import importlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from c_compiler import require_compiler
from emulated_bench import EmulatedBench, free_port
from programs import RTHS, child_environment, killed, write_metadata
from tcp_port import Relay
from terminal import Terminal

from rths_nodes.core import registry
from rths_nodes.loop.commissioning import (
    CAUSES,
    CLOSED,
    CONTROLLER,
    EMERGENCY,
    END_STOPS,
    FAILED,
    KILLED,
    SIGN,
    WITNESSED,
    rig_hash,
)
from rths_nodes.loop.scenario import files
from rths_nodes.procedure.commissioning.rig import Bench
from rths_nodes.procedure.commissioning.trials import TRIALS, commission, scenario_of
from rths_nodes.recording import commissioning

require_compiler()

PAGE = (Path(__file__).resolve().parents[2] / "doc" / "first_test.md").read_text()
RIG = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)[0]
EMULATE, COMMISSION = (
    [*RTHS, *next(line.split()[1:] for line in PAGE.splitlines() if line.startswith("    rths ") and key in line)]
    for key in ("--no-specimen", "rths commission")
)
SWITCHES = {
    "pull the network cable": "cable out @+200",
    "plug the network cable": "cable in",
    "open the interlock": "interlock open @+200",
    "close the interlock": "interlock closed",
    "take the pressure off": "pressure off @+200",
    "bring the pressure back": "pressure high",
    "that was before": "cable in\ninterlock closed\npressure high",
}
"""Part of a question -> line for the emulator."""


@contextmanager
def commissioned(folder: Path, emulate: list[str]) -> Iterator[tuple[Terminal, subprocess.Popen[str]]]:
    """Start the emulator, and ``rths commission`` at a terminal."""
    (folder / "my_rig.yaml").write_text(RIG.replace("port: 25010", f"port: {free_port()}"))
    variables, pipe = child_environment(), subprocess.PIPE
    started = subprocess.Popen(emulate, cwd=folder, env=variables, stdin=pipe, stdout=pipe, text=True)
    with killed(started) as emulator:
        assert "emulated at" in emulator.stdout.readline()
        command = [*COMMISSION, "--pace", "lockstep"]
        with closing(Terminal(command, folder, variables, patience=300.0)) as terminal:
            yield terminal, emulator


def sign_in(terminal: Terminal) -> None:
    for question, answer in (
        ("operator: ", "A. Tester"),
        *(("second person, .*: ", name) for name in ("a.tester", "B. Müller")),
        ("emergency stop", "y"),
    ):
        terminal.answer(question, answer)


@pytest.mark.nodes
@pytest.mark.timeout(600)
def test_commissioning_at_terminal_completes(tmp_path: Path) -> None:
    with commissioned(tmp_path, EMULATE) as (terminal, emulator):
        terminal.wait_for("EMULATED: my_rig")
        sign_in(terminal)
        prompts = "Enter: |moves nothing: |seen this today|sign this result"
        while "sign this result" not in (question := terminal.wait_for(prompts)):
            assert "EMULATED: " in question
            if question.endswith("seen this today"):
                terminal.type("y")
                continue
            if question.endswith("moves nothing: "):
                terminal.type("")
                terminal.wait_for("nothing has moved, because the answer was not CLEAR")
                terminal.wait_for("moves nothing: ")
            terminal.type("CLEAR" if question.endswith("moves nothing: ") else "")
            for part, line in SWITCHES.items():
                if part in question:
                    emulator.stdin.write(f"{line}\n")
                    emulator.stdin.flush()
        terminal.type("y")
        terminal.answer("B. Müller, do you sign this result", "y")
        assert terminal.end() == 0, terminal.shown
    record = commissioning.of_rig(tmp_path / "my_rig.yaml")
    assert (record.operator, record.second_person, record.failed) == ("A. Tester", "B. Müller", [])
    assert record.rig_kind == "EMULATED"
    assert [row.cause for row in record.rows if row.verdict == WITNESSED] == [EMERGENCY, END_STOPS, CONTROLLER]
    fast = [row.speed for row in record.rows if row.what.endswith("from the highest speed") and row.speed]
    assert fast == ["1.09 m/s (91 % of the limit)"] * 3
    assert "EMULATED" in (tmp_path / "my_rig.commissioned.html").read_text()
    assert {row.cause for row in record.rows} >= set(CAUSES)
    assert record.rig_hash == rig_hash(files.load("chen_ricles_2010", rig=tmp_path / "my_rig.yaml"))


KEPT = "signed before"


@pytest.mark.nodes
@pytest.mark.parametrize("ended", [signal.SIGINT, signal.SIGTERM, None])
def test_older_commissioning_record_is_kept(ended: signal.Signals | None, tmp_path: Path) -> None:
    """A receiver that does not answer changes no file; after a signal a failed row is written, unsigned."""
    answers = ended is not None
    record = tmp_path / "my_rig.commissioned.yaml"
    for path in (record, record.with_suffix(".html")):
        path.write_text(KEPT)
    emulate = [*EMULATE, "--plant", "wrong_sign"] if answers else [sys.executable, "-c", "print('emulated at')"]
    with commissioned(tmp_path, emulate) as (terminal, _):
        sign_in(terminal)
        if answers:
            prompts = "Enter: |moves nothing: |sign this result"
            while "sign this result" not in (question := terminal.wait_for(prompts)):
                terminal.type("CLEAR" if question.endswith("moves nothing: ") else "")
            terminal.program.send_signal(ended)
            terminal.wait_for("rths: interrupted: the result is not signed")
        assert terminal.end() == (130 if answers else 2), terminal.shown
    older = [path.read_text() for path in tmp_path.glob("my_rig.commissioned_*")]
    assert older == ([KEPT] * 2 if answers else [])
    if answers:
        result = commissioning.read(record)
        assert (bool(result.failed), result.unsigned) == (True, True)
        sheet = record.with_suffix(".html").read_text()
        assert "FAILED" in sheet
        assert "Failed: " in sheet[sheet.index("<h2>Validity") :]
    else:
        assert record.read_text() == record.with_suffix(".html").read_text() == KEPT


def forget_entry_points() -> None:
    importlib.invalidate_caches()
    for cached in (registry._entry_points, registry._table, registry._load):
        cached.cache_clear()


@pytest.fixture
def tcp_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedBench]:
    """Emulated rig behind the port of another package, which runs the session of ``udp`` over TCP."""
    write_metadata(tmp_path / "site", "tcp_rig", "[rths_nodes.port]\ntcp = tcp_port:TcpPort\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    forget_entry_points()
    rig = EmulatedBench(tmp_path)
    relay = Relay(rig.emulator.address)
    text = rig.file.read_text()
    line = next(line for line in text.splitlines() if line.startswith("port: "))
    tcp_line = line.replace("type: udp", "type: tcp").replace(str(rig.emulator.address[1]), str(relay.port))
    rig.file.write_text(text.replace(line, tcp_line))
    rig.bench = Bench(scenario_of(files.load_rig(rig.file)), False, rig, patience=1.0)
    yield rig
    relay.close()
    rig.close()
    forget_entry_points()


@pytest.mark.parametrize(("part", "cause"), [("signs", SIGN), ("closed", CLOSED), ("killed", KILLED)])
def test_commissioning_over_tcp_passes(tcp_rig: EmulatedBench, part: str, cause: str) -> None:
    rows = commission(tcp_rig.bench, {part: TRIALS[part]})
    assert {row.cause for row in rows} == {cause}
    assert FAILED not in [row.verdict for row in rows]
    assert len(tcp_rig.bench.build) == 16
