# SPDX-License-Identifier: Apache-2.0
"""The commissioning of doc/first_test.md at a terminal, with ``rths emulate`` and its switches in another one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from emulated_bench import free_port
from terminal import Terminal

import rths_nodes
from rths_nodes.loop.commissioning import CAUSES, CONTROLLER, EMERGENCY, END_STOPS, WITNESSED, rig_hash
from rths_nodes.loop.scenario import files
from rths_nodes.recording import commissioning

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)

PAGE = (Path(__file__).resolve().parents[2] / "doc" / "first_test.md").read_text()
RIG = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)[0]
EMULATE, COMMISSION = (
    next(line.split()[1:] for line in PAGE.splitlines() if line.startswith("    rths ") and word in line)
    for word in ("--no-specimen", "rths commission")
)
RTHS = [sys.executable, "-m", "rths_nodes.app.cli"]
SWITCHES = {
    "pull the network cable": "cable out @+200",
    "plug the network cable": "cable in",
    "open the interlock": "interlock open @+200",
    "close the interlock": "interlock closed",
    "take the pressure off": "pressure off @+200",
    "bring the pressure back": "pressure high",
    "that was before": "cable in\ninterlock closed\npressure high",
}
"""Words of a question -> line for the emulator."""
FIRST = (("operator: ", "A. Tester"), ("second person, .*: ", "B. Müller"), ("emergency stop", "y"))


@pytest.mark.nodes
@pytest.mark.timeout(600)
def test_an_operator_is_led_through_a_whole_commissioning(tmp_path: Path) -> None:
    (tmp_path / "my_rig.yaml").write_text(RIG.replace("port: 25010", f"port: {free_port()}"))
    environment = os.environ | {"PYTHONPATH": str(Path(rths_nodes.__file__).parents[1])}
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*RTHS, *EMULATE], cwd=tmp_path, env=environment, **piped) as far:
        assert far.stdin is not None
        assert far.stdout is not None
        assert "emulated at" in far.stdout.readline()
        person = Terminal([*RTHS, *COMMISSION, "--pace", "lockstep"], tmp_path, environment, patience=300.0)
        try:
            person.wait_for("EMULATED: my_rig")
            for question, answer in FIRST:
                person.wait_for(question)
                person.type(answer)
            ends = "Enter: |moves nothing: |seen this today|sign this result"
            while "sign this result" not in (asked := person.wait_for(ends)):
                assert "EMULATED: " in asked
                if asked.endswith("seen this today"):
                    person.type("y")
                    continue
                if asked.endswith("moves nothing: "):
                    person.type("")
                    person.wait_for("nothing has moved, because the answer was not CLEAR")
                    person.wait_for("moves nothing: ")
                person.type("CLEAR" if asked.endswith("moves nothing: ") else "")
                for words, line in SWITCHES.items():
                    if words in asked:
                        far.stdin.write(f"{line}\n")
                        far.stdin.flush()
            person.type("y")
            person.wait_for("B. Müller, do you sign this result")
            person.type("y")
            assert person.end() == 0, person.shown
        finally:
            person.close()
            far.kill()
    found = commissioning.of_rig(tmp_path / "my_rig.yaml")
    assert found is not None
    assert (found.operator, found.second_person, found.failed) == ("A. Tester", "B. Müller", [])
    assert found.rig_kind == "EMULATED"
    assert [row.cause for row in found.rows if row.verdict == WITNESSED] == [EMERGENCY, END_STOPS, CONTROLLER]
    fast = [row.speed for row in found.rows if row.what.endswith("from the highest speed") and row.speed]
    assert fast == ["1.09 m/s (91 % of the limit)"] * 3
    assert "EMULATED" in (tmp_path / "my_rig.commissioned.html").read_text()
    assert {row.cause for row in found.rows} >= set(CAUSES)
    assert found.rig_hash == rig_hash(files.load("chen_ricles_2010", rig=tmp_path / "my_rig.yaml"))


KEPT = "signed before"


@pytest.mark.nodes
@pytest.mark.parametrize("answers", [True, False])
def test_an_older_record_is_kept(answers: bool, tmp_path: Path) -> None:
    """A receiver that does not answer changes no file; after Ctrl-C a failed row is written, unsigned."""
    (tmp_path / "my_rig.yaml").write_text(RIG.replace("port: 25010", f"port: {free_port()}"))
    record = tmp_path / "my_rig.commissioned.yaml"
    for path in (record, record.with_suffix(".html")):
        path.write_text(KEPT)
    environment = os.environ | {"PYTHONPATH": str(Path(rths_nodes.__file__).parents[1])}
    emulate = (
        [*RTHS, *EMULATE, "--plant", "wrong_sign"] if answers else [sys.executable, "-c", "print('emulated at')"]
    )
    with subprocess.Popen(emulate, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as far:
        assert far.stdout is not None
        assert "emulated at" in far.stdout.readline()
        person = Terminal([*RTHS, *COMMISSION, "--pace", "lockstep"], tmp_path, environment, patience=300.0)
        try:
            for question, answer in FIRST:
                person.wait_for(question)
                person.type(answer)
            if answers:
                while "sign this result" not in (
                    asked := person.wait_for("Enter: |moves nothing: |sign this result")
                ):
                    person.type("CLEAR" if asked.endswith("moves nothing: ") else "")
                person.interrupt()
                person.wait_for("rths: interrupted: the result is not signed")
                assert person.end() == 130, person.shown
            else:
                assert person.end() == 2, person.shown
        finally:
            person.close()
            far.kill()
    older = [path.read_text() for path in tmp_path.glob("my_rig.commissioned_*")]
    assert older == ([KEPT] * 2 if answers else [])
    if answers:
        written = commissioning.read(record)
        assert (bool(written.failed), written.unsigned) == (True, True)
        assert "FAILED" in record.with_suffix(".html").read_text()
    else:
        assert record.read_text() == record.with_suffix(".html").read_text() == KEPT
