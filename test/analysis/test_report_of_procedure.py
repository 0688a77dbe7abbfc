# SPDX-License-Identifier: Apache-2.0
"""Tests of the report on a test with its procedure record, and of its first line."""

from __future__ import annotations

import dataclasses
import html
import math
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from messages import mentions
from page_of_test import CHROMIUM

from rths_nodes.analysis import figures
from rths_nodes.analysis.histories import Evaluation
from rths_nodes.analysis.report.document import first_line, render, write_record
from rths_nodes.analysis.report.procedure import DIRECT
from rths_nodes.analysis.report.tables import floors, set_up
from rths_nodes.analysis.share_of_structure import MEASURED, MODEL, STATED, partition
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_TRIPPED
from rths_nodes.core.yaml_text import dump
from rths_nodes.loop.procedure_record import (
    NOT_VERIFIED,
    SIGNED,
    TO_SIGN,
    VERIFIED,
    Act,
    AxisChecks,
    AxisOffsets,
    Note,
    OffsetsRecord,
    ProcedureRecord,
    RungRecord,
    SpecimenRecord,
    UnloadingRecord,
)
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording import procedure
from rths_nodes.recording.procedure import with_rung
from rths_nodes.recording.run import Run

AXIS = "story_1"
SHOWN = "bench (story_1)"
SIMULATION = "SIMULATED: no steel moved"
NOON = "2030-01-02T12:00:00+00:00"


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the text is tested: figures take most of the time."""
    monkeypatch.setattr(figures, "FIGURES", ())


@cache
def bench() -> Run:
    """A second of the frame on the simulated bench."""
    run = hosts.run(files.load("chen_ricles_2010", ["duration=1"], rig="bench_simulated")).run
    assert run is not None
    return run


def offsets(displacement: float) -> OffsetsRecord:
    return OffsetsRecord(NOON, 2.0, {AXIS: AxisOffsets(displacement, 4e-6, -30.5, 4.0, 1e-3, True)}, "ab12", True)


def record(**changes: Any) -> ProcedureRecord:
    """A finished test with ``changes``."""
    rungs = [
        RungRecord("b", NOON, "composed", "lockstep", samples=1024, outcome="finished", recording="rung_b"),
        RungRecord(
            *("g", NOON, "composed", "realtime", 0.75, 1, "c0ffee", "ab12", "finished", "", 1024, 1.0, "rung_g"),
            compared_with="b",
            differences={f"{AXIS}.displacement": 0.0123},
            peaks={AXIS: {"displacement": 0.0321, "force": 4.5e5, "velocity": 0.2}},
            remarks=["three samples were bridged"],
            limits={AXIS: {"displacement": 0.25, "force": 1.8e6}},
        ),
    ]
    procedure_record = ProcedureRecord(
        *("t-42", "chen_ricles_2010", "c0ffee", "bench.yaml", "bench of hall 3", "udp", "A. Müller"),
        specimen=SpecimenRecord("damper-7", [{"date": NOON, "test": "t-41", "rung": "g", "level": 1.0}]),
        started=NOON,
        ended=NOON,
        outcome="finished",
        planned=["b", "c", "g"],
        controller={"hydraulics": "high", "interlock": "closed"},
        deviations=["rung c was left out"],
        notes=[Note(NOON, "oil at 41 °C", "A. Müller")],
        acts=[
            Act(NOON, "sign_for", {"what": f"scale of {AXIS}"}, "signed", "", "A. Müller"),
            Act(NOON, "arm", {"rung": "g"}, "", "another scenario hash", "A. Müller"),
        ],
        offsets_before=offsets(1e-4),
        offsets_after=offsets(1.5e-4),
        checks={
            AXIS: AxisChecks(
                *(VERIFIED, VERIFIED, NOT_VERIFIED, SIGNED, 7.6e6, 7.5e6, 7.2e6, 7.8e6),
                remarks=[f"axes.{AXIS}: scale of the force not verified: no second sensor: {TO_SIGN}"],
            )
        },
        rungs=rungs,
        unloading=[UnloadingRecord(NOON, {AXIS: 9e3}, {AXIS: 12.0}, {AXIS: 3e-3})],
        versions={"rths_nodes": "1.2"},
    )
    return dataclasses.replace(procedure_record, **changes)


def text(page: str) -> str:
    """The text of a page."""
    page = re.sub(r"<style>.*?</style>|<wbr>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page)))


def page_of(procedure_record: ProcedureRecord) -> str:
    return text(render(bench(), test=with_rung(procedure_record, "rung_g")))


def test_page_has_all_of_procedure_record() -> None:
    content = page_of(record())
    for part in (
        *("t-42", "2030-01-02 12:00:00 UTC", "A. Müller", "bench.yaml – bench of hall 3", "damper-7", "t-41"),
        *("c0ffee", "rths_nodes 1.2", "g – full", "Level 75 %", "rung c was left out", "oil at 41 °C"),
        *("hydraulics high", "interlock closed", "confirmed by the operator (hash ab12)"),
        f"{AXIS}: displacement 0.100 0.004 0.150 0.004 0.050 mm yes",
        f"{AXIS}: scale of displacement is not verified.",
        f"{AXIS}: scale of force is not verified: no second sensor. The operator signed for this item (A. Müller, "
        "2030-01-02 12:00:00 UTC).",
        f"sign for: scale of {AXIS}",
        f"{AXIS} verified verified not verified signed for 7.60 7.50 7.20 – 7.80",
        f"{AXIS}.displacement g – full b 0.0123 / –",
        *("g: three samples were bridged", "Rungs that were not climbed: a – embedded, c – computed, not sent"),
        "Planned rungs that were not climbed: c.",
        f"g – full {AXIS} 32.1 250 450 1 800 200 ok",
        *("REFUSED: another scenario hash", "zero force, within"),
    ):
        assert part in content, part
    assert DIRECT not in content
    assert content.count("no second sensor") == 1
    assert TO_SIGN not in content


def test_finished_record_without_histories_has_page(tmp_path: Path) -> None:
    write_record(record(rungs=[], planned=[]), tmp_path / "page.html")
    content = text((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert mentions(content, "t-42", "finished", "damper-7", "no histories")


def test_repeated_rung_has_number() -> None:
    original = record()
    content = page_of(dataclasses.replace(original, rungs=[*original.rungs, original.rungs[-1]]))
    for part in (f"g – full (2) {AXIS} 32.1", "g – full (2) 2030-01-02", "g (2): three samples"):
        assert part in content
    assert "g – full (2)" not in page_of(original)


def test_set_up_has_partition_frequencies_and_sensors() -> None:
    content = page_of(record())
    assert "x 503 0 97.4 640 11.8 7.60" in content  # t, kN s/m, kN/mm: numerical and experimental
    assert mentions(content, SHOWN, "275", "1", "0.005", "0.002")
    parts_of_frame = partition(Assembly(bench().scenario), {})
    assert parts_of_frame.source == MODEL
    assert parts_of_frame.frequencies[0] == pytest.approx(math.sqrt((11.76e6 + 7.6e6) / 503.4e3) / (2.0 * math.pi))


def test_partition_uses_measured_stiffness_without_specimen_model() -> None:
    data = files.load("chen_ricles_2010", ["duration=1"], rig="bench_udp").data()
    data["axes"][AXIS]["specimen"] = None
    assembly = Assembly(files.from_text(dump(data), "test"))
    assert partition(assembly, {}).source == ""
    assert not len(partition(assembly, {}).frequencies)
    parts_of_frame = partition(assembly, {AXIS: 8e6})
    assert (parts_of_frame.source, parts_of_frame.experimental[2].tolist()) == (MEASURED, [[8e6]])


def test_partition_uses_declared_experimental_part() -> None:
    parts_of_frame = partition(Assembly(files.load("rths_benchmark_2020", ["duration=1"])), {})
    assert parts_of_frame.source == STATED
    assert parts_of_frame.experimental[0].any()


def test_error_is_compared_with_sensor_floor() -> None:
    assert floors(bench().scenario)[AXIS] == pytest.approx(math.hypot(2e-6, 5e-6 / math.sqrt(12.0)))
    row = re.search(rf"rms error divided by floor {re.escape(SHOWN)} ([\d. ]+)", page_of(record()))
    assert row
    largest, _, rms, _, floor, scatter, over = (float(value) for value in row[1].split()[:7])
    assert largest > rms > floor
    assert (floor, scatter) == (0.002, 0.004)
    run, samples = bench(), Evaluation(bench()).counted
    exact = np.sqrt(np.mean((run.target - run.displacement)[samples] ** 2))
    assert over == pytest.approx(float(exact) / 4e-6, rel=5e-3)


def test_run_without_procedure_is_marked() -> None:
    content = text(render(bench()))
    assert DIRECT in content
    assert "Ladder" not in content
    assert first_line(bench(), None) == ""


def test_omitted_acts_are_stated() -> None:
    content = page_of(record(offsets_before=None, offsets_after=None, checks={}, acts=[], unloading=[], notes=[]))
    for part in (
        "No offsets were taken.",
        "Nothing was checked, because no small move was made.",
        "The rig was not unloaded by the procedure.",
    ):
        assert part in content
    assert mentions(page_of(record(offsets_after=None)), "drift", "unknown")


def test_first_line_names_rung_level_and_sample_once() -> None:
    run = stopped("held", "sample 500: the operator has requested a stop")
    last = record(outcome="held", reason="sample 500: the operator has requested a stop", sample=500)
    line = first_line(run, with_rung(last, "rung_g"))
    assert mentions(line, "held", "rung g – full", "75\u00a0%", "sample 500 of 1\u202f030", "requested a stop")
    assert line.count("sample 500") == 1


def stopped(outcome: str, reason: str) -> Run:
    flags = bench().flags.copy()
    flags[500:] |= FLAG_TRIPPED
    return dataclasses.replace(
        bench(), flags=flags, information=bench().information | {"outcome": outcome, "reason": reason}
    )


@pytest.mark.parametrize(
    ("outcome", "reason", "words"),
    [
        ("held", "interrupted", ("interrupted", "sample 500")),
        ("held", "stop: asked for", ("Test", "held", "sample 500")),
        ("tripped", "limit of force", ("tripped", "sample 500")),
        ("failed", "actuator node gone", ("Test", "failed", "sample 500")),
        ("", "", ("Recording", "sample 500")),
    ],
)
def test_first_line_states_early_end_of_test(outcome: str, reason: str, words: tuple[str, ...]) -> None:
    page = render(stopped(outcome, reason))
    body = text(page[page.index("<body>") :]).strip()
    body = body.removeprefix(f"{SIMULATION} ").removeprefix(outcome.upper() or "NOT FINISHED").strip()
    assert mentions(body, *words)
    assert (reason or "no reason") in body[:150]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outcome": "tripped", "reason": "limit of force", "sample": 7}, ("TRIPPED", "sample 7")),
        ({"outcome": "interrupted", "reason": "ctrl-c"}, ("INTERRUPTED", "ctrl-c")),
        ({"outcome": "refused", "reason": "axes.x: no"}, ("REFUSED", "axes.x")),
        ({"outcome": ""}, ("NOT ENDED", "arm", "2030-01-02 12:00:00 UTC")),
    ],
)
def test_first_line_states_early_end_of_procedure(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    page = render(bench(), test=with_rung(record(**changes), "rung_g"))
    assert mentions(text(page[page.index("<body>") :]).strip().removeprefix(f"{SIMULATION} "), *words)


def head_of(page: str) -> str:
    """The text of the verdict on the first page."""
    (verdict,) = re.findall(r'<section class="verdict">.*?</section>', page, re.DOTALL)
    return text(verdict)


def test_unfinished_test_has_no_green_badge_of_other_rung() -> None:
    ended = record(outcome="tripped", reason="a limit", operator="A. Müller")
    page = render(bench(), test=with_rung(ended, "rung_b"))
    assert 'class="badge good"' not in page
    assert "rung b – nodes: finished" in text(page)
    assert mentions(text(page), "test", "ended")
    assert "test ran to" not in text(page)
    for words in ("TRIPPED", "a limit", "t-42", "damper-7", "Operator A. Müller", "Second person", "Signature"):
        assert words in head_of(page)
    assert page.count("Second person") == 1


def bridged(share: float) -> Run:
    flags = bench().flags.copy()
    flags[1 : 1 + round(share * (len(flags) - 1))] |= FLAG_BRIDGED
    return dataclasses.replace(bench(), flags=flags)


def test_mostly_bridged_test_is_not_valid_on_first_page() -> None:
    run = bridged(0.55)
    assert run.outcome == "finished"
    assert mentions(run.ending, "not valid", "55 %", "2 %")
    page = render(run)
    head = head_of(page).replace("\u202f", " ")
    for part in ("NOT VALID", "Test not valid: 55 % bridged (at most 2 %)", "566 of 1 030 samples were bridged"):
        assert part in head
    assert 'class="badge good"' not in page
    last = record()
    last.rungs[-1].bridged = 566
    content = head_of(render(run, test=with_rung(last, "rung_g")))
    assert content.count("not valid: 55 % bridged") == 1
    assert "NOT VALID" in content


def test_with_few_bridged_samples_is_valid() -> None:
    run = bridged(0.019)
    assert run.ending == "finished"
    assert 'class="badge good">finished' in render(run)


def test_finished_test_has_two_signatures_and_simulation_notice() -> None:
    page = render(bench(), test=with_rung(record(), "rung_g"))
    assert "verdict" not in page[page.index("<body>") :]
    content = text(page)
    assert SIMULATION in content
    assert "Operator A. Müller" in content
    assert page.count("Second person") == 1
    emulated = files.load("chen_ricles_2010", ["duration=1", "port.emulator=true"], rig="bench_udp")
    assert mentions(text(render(dataclasses.replace(bench(), scenario=emulated))), "EMULATED", "steel")
    steel = files.load("chen_ricles_2010", ["duration=1", "port.emulator=false"], rig="bench_udp")
    page = text(render(dataclasses.replace(bench(), scenario=steel)))
    assert "REAL RIG" in page
    assert not mentions(page, "nothing", "steel")


def test_first_page_identifies_test_outcome_limits_and_signatures() -> None:
    details = {"laboratory": "Hall 3, Example Street 1", "client": "Bridge Authority"}
    page = render(bench(), test=with_rung(record(**details, commissioning="2030-01-01, by A and B"), "rung_g"))
    first = page[page.index("<body>") : page.index("<h2>Figures")]
    assert first.count('class="sheet"') == 1
    content = text(first)
    for part in (
        *("A. Müller", "damper-7", "bench.yaml – bench of hall 3", "Hall 3, Example Street 1", "Bridge Authority"),
        *("2030-01-02 12:00:00 UTC", "finished", "2030-01-01, by A and B", "rung c was left out", "Signature"),
        f"{SHOWN}: stroke −250",
    ):
        assert part in content, part
    assert text(page).count(record().deviations[0]) == 1
    assert "break-after:page" in page[page.index(".sheet{") :][:30]


def test_default_parameters_are_listed_on_request() -> None:
    pages = [render(bench(), defaults=defaults).replace("<wbr>", "") for defaults in (False, True)]
    assert [">alpha_min<" in page for page in pages] == [False, True]
    assert [">alpha_es<" in page for page in pages] == [True, True]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed here")
def test_of_one_axis_prints_on_eight_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # restores the figures
    rung = record().rungs[-1]
    rungs = [dataclasses.replace(rung, name=name, compared_with="b") for name in "abcdefg"]
    acts = [Act(NOON, "position", {"clear": "CLEAR"}, "", "", "A. Müller") for _ in range(26)]
    page = render(bench(), True, with_rung(record(rungs=rungs, acts=acts), "rung_g"))
    printed, source = tmp_path / "report.pdf", tmp_path / "report.html"
    source.write_text(page.replace("@page{margin", "@page{size:A4;margin", 1))
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}")
    subprocess.run(
        [str(CHROMIUM), *options, f"--print-to-pdf={printed}", source.as_uri()], check=True, timeout=60.0
    )
    assert len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) <= 8


def test_rig_axis_name_comes_first() -> None:
    content = page_of(record(axis_names={AXIS: "north (story_1)"}))
    assert "north (story_1): displacement 0.100" in content
    assert mentions(content, "story_1", "7.60")
    assert "g – full north (story_1) 32.1 250" in content


def test_without_motion_has_page_of_record_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = record(outcome="refused", reason=f"axes.{AXIS}: wrong sign of force", rungs=record().rungs[:1])
    procedure.write(refused, tmp_path / "t-42")
    out = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "t-42"), "--out", str(out)]) == 0
    page = out.read_text()
    assert "REFUSED" in head_of(page)
    assert mentions(head_of(page), "sign", "force")
    assert "badge good" not in page
    assert not mentions(page, "ran", "end")
    assert mentions(page, "Acts", "operator")
    capsys.readouterr()
    assert main(["report", str(tmp_path / "t-42"), "--csv", "--out", str(out)]) == 2
    assert mentions(capsys.readouterr().err, "histories")


def test_report_links_recording_procedure_and_last_rung(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "t-42"
    for rung, length in (("rung_b", 0.2), ("rung_g", 0.1)):
        hosts.run(files.load("chen_ricles_2010", [f"duration={length}"]), record=folder / rung)
    procedure.write(record(), folder)
    for path, name in ((folder, "whole"), (folder / "rung_g", "rung"), (folder / "rung_b", "b")):
        assert main(["report", str(path), "--out", str(tmp_path / f"{name}.html")]) == 0
    pages = {name: text((tmp_path / f"{name}.html").read_text()) for name in ("whole", "rung", "b")}
    assert pages["whole"] == pages["rung"]
    assert mentions(pages["rung"], "Rung", "histories", "full")
    assert mentions(pages["b"], "Rung", "histories", "nodes")
    (folder / "procedure.yaml").write_text("version: 1\n")
    capsys.readouterr()
    assert main(["report", str(folder / "rung_g"), "--out", str(tmp_path / "x.html")]) == 2
    assert mentions(capsys.readouterr().err, "procedure.yaml", "damaged", "missing")


def test_set_up_has_cautions_of_test() -> None:
    overrides, sections = ["duration=0.1", "axes.story_1.specimen.stiffness=7.6e3"], {}
    for name, selected in (("good", overrides[:1]), ("soft", overrides)):
        evaluation = Evaluation(hosts.run("chen_ricles_2010", selected, rig="bench_simulated").read())
        (sections[name],) = (section for section in set_up(evaluation, None) if section.title == "Cautions")
    assert (sections["good"].words, sections["good"].items) == (("None.",), ())
    file_caution, integrator_caution = sections["soft"].items
    assert mentions(file_caution, "axes.story_1.specimen.stiffness", "7600 N/m", "7.6e+06 N/m")
    assert integrator_caution.endswith("(specimen_of_another_rig: axes.story_1.specimen.stiffness)")
