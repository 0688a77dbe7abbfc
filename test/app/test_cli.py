# SPDX-License-Identifier: Apache-2.0
"""Tests of the command line: output, exit codes, refusal of invalid input without a traceback."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_fixtures import RunCommand
from messages import mentions, naming
from programs import module_of, settings

from rths_nodes.analysis.figures import analyses as figures
from rths_nodes.analysis.stability.judgement import judge_loop
from rths_nodes.analysis.stability.of_scenario import sampled_loop
from rths_nodes.app import cli
from rths_nodes.app.cli import main
from rths_nodes.app.commands import check, lookup
from rths_nodes.core import registry, yaml_text
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import load, override
from rths_nodes.recording.reading import read_run
from rths_nodes.ros.names import TOPICS

ROOT = Path(__file__).resolve().parents[2]
PAPER = "chen_ricles_2010"
SHORT = ["--set", "duration=0.2"]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check, "REHEARSED_S", 0.2)  # shorter, to save time


# run


def test_run_prints_json(output: RunCommand) -> None:
    report = json.loads(output("run", PAPER, *SHORT, "--json"))
    assert {"wall_s", "metrics", "compensator", "timing", "messages"} <= set(report)
    assert (report["scenario"], report["host"], report["pace"]) == (PAPER, "embedded", "lockstep")
    assert (report["outcome"], report["samples"], report["recording"]) == ("finished", 210, None)
    displacements = {"max_displacement_m", "min_displacement_m", "end_displacement_m"}
    assert set(report["metrics"]) == {"axes", "hsem_percent"} | displacements
    errors = {"max_error_m", "max_error_percent", "error_norm_percent", "delay_s", "tracking_indicator_m2"}
    assert set(report["metrics"]["axes"]["story_1"]) == errors
    assert report["compensator"]["type"] == "adaptive_inverse"
    assert set(report["compensator"]["axes"]["story_1"]) == {"alpha", "delta_alpha", "tracking_indicator"}
    for durations in ("loop", "lateness"):
        assert set(report["timing"][durations]) == {"mean_s", "median_s", "p99_s", "p999_s", "max_s"}
    assert {"missed", "bridged"} <= set(report["timing"])
    bins = report["timing"]["loop_histogram"]
    assert sum(bins["counts"]) == report["samples"]
    assert bins["counts"][0] > 0 < bins["counts"][-1]
    assert len(bins["edges_s"]) == len(bins["counts"]) + 1


def test_json_has_null_for_nan(output: RunCommand) -> None:
    text = output("run", PAPER, *settings("duration=0.05", "ground_motion.type=none"), "--json")
    report = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert report["metrics"]["hsem_percent"] is None
    assert report["metrics"]["axes"]["story_1"]["delay_s"] is None


def test_run_prints_table(output: RunCommand) -> None:
    text = output("run", PAPER, *SHORT)
    assert f"{PAPER}: finished after 210 samples" in text
    assert "story_1" in text


def test_run_accepts_path_and_records(output: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml_text.dump(files.load(PAPER).data() | {"name": "mine"}))
    report = json.loads(output("run", str(path), *SHORT, "--record", "rec", "--json"))
    assert (report["scenario"], report["recording"]) == ("mine", str(tmp_path / "rec"))
    assert (tmp_path / "rec" / "metadata.yaml").is_file()


def test_trip_sets_exit_code_and_reason(output: RunCommand) -> None:
    overrides = settings("duration=8", "axes.story_1.limits.force=1e5")
    report = json.loads(output("run", PAPER, *overrides, "--json", code=3))
    assert report["outcome"] == "tripped"
    assert "axes.story_1.limits.force: measured = " in report["reason"]


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("axes.story_1.actuator.type=servo_hydraulic", "gain", 1024.0 / 28.0),
        ("axes.story_1.specimen.type=softening_elastomeric", "friction_force", 60e3),
        ("axes.story_1.actuator.alpha=31", "alpha", 31.0),
    ],
)
def test_set_overrides_scenario_keys(output: RunCommand, override: str, key: str, value: float) -> None:
    text = output("run", PAPER, *SHORT, "--set", override, "--record", "rec", "--json")
    axis = read_run(Path(json.loads(text)["recording"])).scenario.axes["story_1"]
    assert getattr(axis.actuator, key, getattr(axis.specimen, key, None)) == value


# list, params, check


def test_list_prints_families_and_components(output: RunCommand) -> None:
    assert "\nsimulator  " in output("list", "port")
    assert all(f"{family}\n" in output("list") for family in ("scenario", *registry.FAMILIES))


@pytest.mark.parametrize("name", sorted({name for family in registry.FAMILIES for name in registry.names(family)}))
def test_params_accepts_every_component(output: RunCommand, name: str) -> None:
    assert output("params", name).startswith(f"{name} (")


def test_params_prints_bounds_defaults_and_meaning(output: RunCommand) -> None:
    assert mentions(" ".join(output("params", "first_order").split()), ">= 1", "29.0", "constant")


def current_pages(script: str, page: str) -> dict[str, str]:
    """Return the pages that a script of ``doc`` writes; they must equal the stored ones."""
    pages: dict[str, str] = module_of(ROOT / "doc" / f"{script}.py").pages()
    paths = [ROOT / "doc" / f"{page}.md", *(ROOT / "doc" / page).glob("*.md")]
    stored = {str(path.relative_to(ROOT / "doc")): path.read_text() for path in paths}
    outdated = [name for name in pages.keys() | stored.keys() if pages.get(name) != stored.get(name)]
    assert outdated == [], f"run: python doc/{script}.py"
    return pages


def test_parameter_pages_are_up_to_date() -> None:
    pages = current_pages("parameter_pages", "parameters")
    assert {f"parameters/{family}.md" for family in registry.FAMILIES} < pages.keys()
    assert max(len(text.split()) for text in pages.values()) < 4000


def test_reference_pages_are_up_to_date() -> None:
    pages = current_pages("reference_pages", "reference")
    assert all(f"### rths {name}\n" in pages["reference/commands.md"] for name in cli.COMMANDS)
    assert all(f"| `{name}` |" in pages["reference/ros.md"] for name in TOPICS)


@pytest.mark.parametrize("name", files.shipped())
def test_check_accepts_shipped_scenarios(output: RunCommand, name: str) -> None:
    assert output("check", name).startswith(f"{name}: fits together\n")


def test_check_prints_external_force_only_with_structure(output: RunCommand) -> None:
    assert mentions(output("check", PAPER), "largest", "external")
    assert not mentions(output("check", "predefined_sine"), "largest", "external")


def test_check_warns_of_trip_on_simulator(output: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "REHEARSED_S", 60.0)  # long enough to trip on a busy machine
    text = output("check", PAPER, *settings("axes.story_1.limits.velocity=0.05"))
    assert mentions(text, "caution", "sample", "axes.story_1.limits.velocity: command = ")


def test_version_equals_package_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as excinfo:
        main(["--version"])
    assert excinfo.value.code == 0
    assert f"<version>{capsys.readouterr().out.split()[1]}</version>" in (ROOT / "package.xml").read_text()


# Invalid input


VALUES = [
    # unknown component, misspelt and unknown keys, missing keys
    ("axes.story_1.actuator.type=hydraulic", "axes.story_1.actuator.type: unknown actuator 'hydraulic'.*known: "),
    ("structure.mas=1", r"structure.mas: unknown key 'mas' \(did you mean 'mass'\?\); known: .*mass"),
    ("nonsense=1", "nonsense: unknown key 'nonsense'.*known: axes, "),
    ("axes.story_2.actuator.alpha=29", r"axes.story_2: unknown section 'story_2' .*known: story_1"),
    ("structure.type=sdof_2", "structure.type: unknown structure 'sdof_2'.*known: matrices, sdof"),
    ("structure.restoring_force.type=bilinear", r"structure.restoring_force.yield_force: missing .*\[N\]"),
    ("axes.story_1.limits=null", r"axes.story_1.limits.stroke: missing .*\[m\]"),
    # wrong type
    ("structure.mass=heavy", "structure.mass = 'heavy': must be a number in kg"),
    ("structure.mass=2024-01-01", "structure.mass = .*must be a number in kg"),
    ("name=3", "name = 3: must be text"),
    ("axes=3", "axes = 3: must be a mapping of names to sections"),
    # out of bounds, not finite
    ("structure.mass=0", "structure.mass = 0 kg: must be > 0 kg"),
    ("structure.damping_ratio=-0.02", "structure.damping_ratio = -0.02: must be >= 0 and < 1"),
    ("axes.story_1.specimen.damping=-1", "axes.story_1.specimen.damping = -1 N s/m: must be >= 0 N s/m"),
    ("axes.story_1.actuator.alpha=0.5", "axes.story_1.actuator.alpha = 0.5 samples: must be >= 1 samples"),
    ("servo_rate=1e9", r"servo_rate = 1e\+09 Hz: must be > 0 and <= 100000 Hz"),
    ("servo_rate=.nan", "servo_rate = nan: must be a finite number in Hz"),
    ("duration=.inf", "duration = inf: must be a finite number in s"),
    ("substeps=2.5", "substeps = 2.5: must be a whole number"),
    ("substeps=0", "substeps = 0: must be >= 1 and <= 100000"),
    # misread by YAML 1.1, or unreadable
    ("duration=1:30", "duration = '1:30': must be a number in s"),
    ("servo_rate=12:30:45", "servo_rate = '12:30:45': must be a number in Hz"),
    ("duration=1_0", "duration = '1_0': must be a number in s"),
    (
        "structure.mass=1e-400",
        "--set structure.mass: line 1: '1e-400': too small for a floating-point number; it would be read as 0",
    ),
    # too large
    ("time_ratio=1.25", "time_ratio = 1.25: multiplied by substeps = 10, it must be a whole number"),
    ("name=" + "a" * 300, "name = 'a+...: has 300 bytes, but must have <= 180"),
    ("axes={" + "a" * 300 + ": {}}", "axes: the name 'a+... has 300 characters: must be <= 64"),
    # not an assignment, not YAML
    ("substeps", "--set substeps: must be section.key=value"),
    ("substeps=[", "--set substeps: line 1: not YAML"),
    ("axes.story_1.limits={stroke: 1, stroke: 2}", "line 1: the key 'stroke' appears twice"),
    ("axes.story_1.limits={<<: {stroke: 1, stroke: 2}}", "line 1: the key 'stroke' appears twice"),
    ("axes.story_1.limits={<<: [{force: 1}, {stroke: 1, stroke: 2}]}", "line 1: the key 'stroke' appears twice"),
    ("type=none", "type: unknown key 'type'; known: [^;]*version$"),
    # inconsistent
    ("integrator.type=central_difference substeps=1000", "must be < .* s .stability limit 2/omega_max"),
    (
        "structure=null",
        "structure: missing; only the integrators 'prescribed' and 'predefined' do not need a structure",
    ),
    ("compensator.alpha_min=20", "compensator.alpha_es = 15 samples: must be between alpha_min and alpha_max"),
    (
        "ground_motion.record=elcentro",
        "ground_motion.record: unknown value 'elcentro'.*known: .*elcentro_1940_180, ",
    ),
]
DELAY_COMPENSATION = [
    ("compensator.second.order=5", "compensator.second.order = 5: must be >= 0 and <= 4"),
    ("compensator.second.spacing=0", "compensator.second.spacing = 0 samples: must be >= 1"),
    ("compensator.first.forgetting=0", "compensator.first.forgetting = 0: must be > 0 and <= 1$"),
    ("compensator.first.forgetting=1.1", "compensator.first.forgetting = 1.1: must be > 0 and <= 1$"),
    ("compensator.second.delay=0.5", "compensator.*delay = 0.5 s: must be <= 0.0273"),
    (
        "compensator={type: adaptive_time_series, delay: 0.01, window: 60}",
        "compensator.window = 60 s: must be <= duration = 31 s",
    ),
    ("integrator.type=central_difference substeps=100", r"central_difference: .* must be < .* \(stability limit"),
    ("setup.matrix=[[1.0, 0.0]]", r"setup.matrix: must be 1 x 3 \(axes x degrees of freedom\), but is 1 x 2"),
    ("structure.masses=[2e4, 2e4]", "structure.stiffnesses = .*: must be 2 numbers"),
]


@pytest.mark.parametrize(
    ("command", "overrides", "message"),
    [pytest.param(["run", PAPER, *SHORT], *row, id=row[0]) for row in VALUES]
    + [pytest.param(["check", "tadc_el_centro"], *row, id=row[0]) for row in DELAY_COMPENSATION],
)
def test_invalid_values_are_refused(refusal: RunCommand, command: list[str], overrides: str, message: str) -> None:
    parts = overrides.split(" ") if re.search(" (axes|substeps)", overrides) else [overrides]
    assert re.search(message, refusal(*command, *settings(*parts)))


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "a" * 300],
        ["run", "a" * 300 + ".yaml"],
        ["run", PAPER, *SHORT, "--record", "a" * 300],
        ["run", PAPER, *SHORT, "--report", "a" * 300],
        ["run", PAPER, *SHORT, "--namespace", "a" * 300],
        ["run", PAPER, *SHORT, "--set", "ground_motion.file=" + "a" * 300],
        ["report", "a" * 300],
        ["recover", "a" * 300],
    ],
    ids=lambda arguments: " ".join(arguments)[:50],
)
def test_too_long_names_are_refused(refusal: RunCommand, arguments: list[str]) -> None:
    assert re.search("too long|300 characters", refusal(*arguments))


def test_scenario_in_utf_16_is_checked(tmp_path: Path, output: RunCommand) -> None:
    path = tmp_path / "wide.yaml"
    path.write_text(files.locate("predefined_sine").read_text(), encoding="utf-16")
    assert "fits together" in output("check", str(path))


def test_too_large_file_is_refused_before_reading(refusal: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(1 << 40)  # sparse: needs no space on the disk
    assert mentions(refusal("check", str(path)), "large.yaml", "1024 GiB", "4 MiB")
    motion = settings(f"ground_motion.file={path}", "ground_motion.step=0.01", "ground_motion.unit=g")
    assert mentions(refusal("check", PAPER, *motion), "ground_motion.file", "1024 GiB", "32 MiB")


def change(data: dict[str, Any], **changes: Any) -> str:
    return yaml_text.dump(data | changes)


FILES: list[tuple[str, Callable[[dict[str, Any]], str], str]] = [
    ("empty", lambda data: "", "must be a mapping with at least one section"),
    ("not yaml", lambda data: "a: [1", "line 1: not YAML: "),
    ("duplicate", lambda data: yaml_text.dump(data) + "seed: 3\n", r"line \d+: the key 'seed' appears twice"),
    ("misspelt", lambda data: change(data, sevro_rate=1.0), r"sevro_rate: unknown key.*did you mean 'servo_rate'"),
    ("version", lambda data: change(data, version=2), "version = 2: must be >= 1 and <= 1"),
]


@pytest.mark.parametrize(("make_text", "message"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_invalid_file_is_refused_with_its_path(
    refusal: RunCommand, make_text: Callable[[dict[str, Any]], str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(make_text(files.load(PAPER).data()))
    for command in ("run", "check"):
        error = refusal(command, str(path))
        assert str(path) in error or "identity" in error
        assert re.search(message, error)


def test_invalid_ground_motion_is_refused(refusal: RunCommand, tmp_path: Path) -> None:
    """One of the refusals in test_ground_motions.py, and one that needs no file."""
    (tmp_path / "motion.txt").write_text("100\n-320\n")
    for file, message in (("motion.txt", "must be 0.001 to 50 m/s.2.* Correct the unit"), ("a", "no such file")):
        motion = (f"file={tmp_path / file}", "step=0.01", "unit=g")
        overrides = [f"ground_motion.{key}" for key in motion]
        assert re.search(message, refusal("run", PAPER, *SHORT, *settings(*overrides)))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run", "chen_riclse_2010"], ("unknown", "chen_riclse_2010", "chen_ricles_2010")),
        (["run", "nowhere.yaml"], ("no such file",)),
        (["run", PAPER, "--pace", "realtime"], ("embedded", "clock")),
        (["check", "predefined_sine", "--set", "integrator.type=cr"], ("structure: missing",)),
        (["report", "nowhere"], ("nowhere",)),
        (["report", "a", "b", "--defaults"], ("--defaults", "single")),
        (["report", "rig.commissioned.yaml", "--defaults"], ("--defaults", "commissioning")),
        (["params", "first_ordr"], ("unknown", "first_ordr", "first_order")),
    ],
)
def test_invalid_arguments_are_refused(refusal: RunCommand, arguments: list[str], parts: tuple[str, ...]) -> None:
    assert mentions(refusal(*arguments), *parts)


def test_unwritable_recording_is_refused(refusal: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    assert mentions(refusal("run", PAPER, *SHORT, "--record", "file/run"), tmp_path / "file" / "run", "recording")
    assert (tmp_path / "file").read_text() == "text"


def test_recording_is_not_overwritten(output: RunCommand, refusal: RunCommand, tmp_path: Path) -> None:
    output("run", PAPER, *SHORT, "--record", "rec")
    before = {path: path.read_bytes() for path in (tmp_path / "rec").iterdir()}
    assert mentions(refusal("run", PAPER, *SHORT, "--record", "rec"), "recording", "already")
    assert {path: path.read_bytes() for path in (tmp_path / "rec").iterdir()} == before


def test_unwritable_report_is_refused_before_run(refusal: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("file/page.html", "."):
        assert mentions(refusal("run", PAPER, "--report", path), path, "written")


def test_recording_is_not_replaced_by_report(output: RunCommand, refusal: RunCommand) -> None:
    output("run", PAPER, *SHORT, "--record", "rec")
    for path in ("rec/rec_0.mcap", "rec/metadata.yaml"):
        assert mentions(refusal("report", "rec", "--out", path), path, "recordings")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", PAPER, "--report"),
        ("report", "rec", "--out"),
        ("stability", PAPER, "--figure"),
        ("identify", PAPER, "--out"),
        ("corridor", "rths_benchmark_2020", "--out"),
    ],
)
def test_missing_output_folder_is_refused_before_run(
    arguments: tuple[str, ...], refusal: RunCommand, tmp_path: Path
) -> None:
    path = "no/such/page.png" if arguments[-1] == "--figure" else "no/such/page.npz"
    assert mentions(refusal(*arguments, path), path, "no/such")
    assert not list(tmp_path.iterdir())


def test_report_in_runs_creates_folder(output: RunCommand, tmp_path: Path) -> None:
    output("run", PAPER, *SHORT, "--report", "runs/page.html")
    assert (tmp_path / "runs" / "page.html").is_file()


def test_report_is_written_next_to_recording(output: RunCommand, tmp_path: Path) -> None:
    for name in ("rec", "other"):
        output("run", PAPER, *SHORT, "--record", f"runs/{name}")
    assert output("report", "runs/rec/") == "runs/rec.html\n"
    assert output("report", "runs/rec", "runs/other") == "runs/rec_compared.html\n"
    assert (tmp_path / "runs" / "rec.html").is_file()
    assert (tmp_path / "runs" / "rec_compared.html").is_file()
    (tmp_path / "runs" / "rec" / "sub").mkdir()
    assert output("report", "runs/rec/sub/..") == f"{tmp_path}/runs/rec.html\n"
    assert output("export", "runs/rec/sub/..", "--out", "to", "--form", "mat") == "to/rec.mat\n"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("run", PAPER, "--report"), ("finished", "after")),
        (("compare", PAPER, "--variant", "", "--set", "duration=2", "--figure"), ("indices", "true")),
        (("stability", PAPER, "--figure"), ("stable",)),
        (("identify", PAPER, "--duration", "10", "--rms", "0.001", "--orders", "1", "--out"), ("story_1",)),
    ],
)
def test_result_is_printed_when_disk_is_full(
    arguments: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = tmp_path / "full.png"
    full.symlink_to("/dev/full")
    if arguments[0] == "run":
        assert main([*arguments, str(full), *SHORT]) == ExitCode.FINISHED  # the report is no part of the test
    else:
        assert main([*arguments, str(full)]) == ExitCode.FAILED
    out, err = capsys.readouterr()
    assert mentions(out, *parts)
    assert str(full) not in out
    assert mentions(err, "rths", full)


@pytest.mark.parametrize("package", ["matplotlib", "rclpy._rclpy_pybind11"])
def test_missing_package_is_named_without_traceback(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_run(path: str) -> None:
        raise ModuleNotFoundError(f"No module named {package!r}")

    monkeypatch.setattr("rths_nodes.app.commands.recordings.read_run", read_run)
    assert main(["report", "rec", "--out", "page.html"]) == ExitCode.FAILED
    err = capsys.readouterr().err
    assert err.startswith("rths: ")
    assert mentions(err, package, "install")


def test_name_without_suffix_suggests_file(refusal: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    assert mentions(refusal("run", "mine"), "mine", "no such file", "mine.yaml")


@pytest.mark.parametrize(
    ("named", "message"),
    [(["rec"], naming("rths", "rec", "Input/output")), ([], r"\Arths: Input/output error\n\Z")],
    ids=["named", "without a name"],
)
def test_read_error_names_recording_or_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: list[str], message: str
) -> None:
    """An error without a name does not blame the page."""

    def read_run(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", *named)

    monkeypatch.setattr("rths_nodes.app.commands.recordings.read_run", read_run)
    assert main(["report", "rec", "--out", "page.html"]) == ExitCode.FAILED
    assert re.search(message, capsys.readouterr().err)


def test_all_problems_of_scenario_are_printed(refusal: RunCommand, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = (ROOT / "config" / "scenarios" / f"{PAPER}.yaml").read_text()
    file.write_text(text.replace("servo_rate: 1024.0", "servo_rate: -1.0").replace("substeps:", "substebs:"))
    lines = refusal("check", str(file)).splitlines()
    assert all(line.startswith(f"rths: {file}: ") for line in lines)
    for line, problem in zip(lines[:3], ("substebs", "servo_rate = -1 Hz", "substeps: missing"), strict=True):
        assert problem in line


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["runs/sine"], "ros2 bag play runs/sine --clock`"),
        (["runs/sine", "--rate", "4"], "ros2 bag play runs/sine --clock --rate 4`"),
        (["runs/sine", "--rate", "4", "--page"], "ros2 bag play runs/sine --clock --rate 4`"),
    ],
)
def test_replay_names_its_replacement(refusal: RunCommand, arguments: list[str], command: str) -> None:
    assert mentions(refusal("replay", *arguments), command, "--page")


@pytest.mark.parametrize(
    "arguments",
    [["run"], ["run", PAPER, "--host", "mars"], ["list", "families"], [], ["run", PAPER, "--record"]]
    + [["doctor", "nonsense"], ["report", ""], ["recover", ""]],
)
def test_invalid_arguments_exit_with_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=f"^{ExitCode.REFUSED:d}$"):
        main(arguments)
    assert capsys.readouterr().err.startswith(" ".join(["usage: rths", *arguments[:1]]))


COMPARED = ["compare", PAPER, "--set", "duration=0.2"]


def test_compare_prints_table(output: RunCommand) -> None:
    text = output(*COMPARED, "--variant", "compensator.type=inverse, compensator.alpha=25", "--variant", "")
    assert mentions(text, PAPER, "2", "variants")
    rows = {line.split("finished")[0].strip(): line for line in text.splitlines() if "finished" in line}
    assert set(rows) == {"inverse, alpha=25", "as it is"}
    assert "alpha 15" in rows["as it is"]
    assert all(heading in text for heading in ("J1 (ms)", "J2 (%)", "J3 (%)", "max (mm)"))
    assert "published" not in text


def test_compare_prints_published_values(output: RunCommand, tmp_path: Path) -> None:
    data = files.load(PAPER).data()
    data["cases"] = {"poor": {"published": {"J2": 0.43, "alpha_range": 14.0}}, "none": {}}
    (tmp_path / "mine.yaml").write_text(yaml_text.dump(data))
    text = output("compare", "mine.yaml", "--set", "duration=0.2", "--cases", "poor")
    assert text.count("published") == 2
    assert "0.43" in text
    assert re.search(r"poor: alpha_range \S+, published 14", text)


def test_compare_prints_json(output: RunCommand) -> None:
    comparison = json.loads(output(*COMPARED, "--cases", "alpha_15_k_p_0,alpha_15_k_p_04", "--json"))
    assert comparison["scenario"] == PAPER
    first, second = comparison["variants"]
    assert (first["name"], second["name"]) == ("alpha_15_k_p_0", "alpha_15_k_p_04")
    assert first["set"] == ["compensator.alpha_es=15.0", "compensator.k_p_per_mm2=0.0"]
    assert set(first["published"]) <= set(first["values"])
    assert set(first["parameters"]["alpha"]["story_1"]) == {"lowest", "highest"}
    assert first["axes"]["story_1"]["max_error_m"] * 1e3 == first["values"]["max_error_mm"]


def test_compare_writes_figure(output: RunCommand, tmp_path: Path) -> None:
    assert "figure: all.png" in output(*COMPARED, "--variant", "", "--figure", "all.png")
    assert (tmp_path / "all.png").is_file()


def test_compare_returns_exit_code_of_trip(output: RunCommand) -> None:
    arguments = ["compare", PAPER, "--set", "duration=4", "--variant", "axes.story_1.limits.force=1e4"]
    assert "limits.force" in output(*arguments, code=3)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--variant", "compensator.type=nonee"], ("unknown", "compensator", "nonee")),
        (["--variant", "compensator"], ("compensator", "section.key")),
        (["--cases", "alpha_15"], ("case", "unknown", "alpha_15")),
        (["--set", "duraton=1"], ("duraton", "unknown", "key")),
        (["--variant", "", "--figure", ""], ("--figure", "empty")),
        (["--variant", "", "--figure", "all.bmp"], ("all.bmp", "svg")),
        (["--variant", "", "--figure", "file/all.png"], ("file/all.png", "written")),
    ],
)
def test_compare_refuses_invalid_arguments(
    refusal: RunCommand, arguments: list[str], parts: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert mentions(refusal("compare", PAPER, *arguments), *parts)


# stability

VERIFICATION = "horiuchi_1996_verification"
UNSTABLE = ["--set", "compensator.type=none"]


def test_margins_of_stable_test_are_printed(output: RunCommand) -> None:
    text = output("stability", VERIFICATION)
    first, *rest = text.splitlines()
    assert mentions(first, VERIFICATION, "stable", "26.6 %", "10 ms", "13.63 ms", "natural", "2 Hz")
    assert sum(line.rstrip().endswith(" stable") for line in rest) == 4
    for part in ("k*/k", "critical delay", "critical first natural frequency", "assumed: small motion"):
        assert part in text


@pytest.mark.parametrize(
    ("options", "name"),
    [(UNSTABLE, VERIFICATION), (["--case", "no_compensation"], f"{VERIFICATION}.no_compensation")],
)
def test_unstable_test_is_printed_with_limits(output: RunCommand, options: list[str], name: str) -> None:
    """The exit code stays 0."""
    text = output("stability", VERIFICATION, *options)
    first = text.splitlines()[0]
    assert mentions(first, name, "UNSTABLE", "-203 %", "5.731 Hz", "fall", "10 ms")
    assert text.count("UNSTABLE") == 4  # the verdict and three of the modes


def test_check_warns_of_small_margin(output: RunCommand) -> None:
    """The delay may grow from 26.86 to 26.93 ms; unknown changes of a rig are larger."""
    small = ["yielding_five_story", "--set", "compensator.type=none"]
    small += ["--set", "structure.damping.ratios=[0.0171, 0.0171]"]
    assert mentions(output("stability", *small).splitlines()[0], "stable", "0.28 %")
    lines = [line for line in output("check", *small).splitlines() if "delay margin" in line]
    for line in lines:
        assert all(part in line for part in ("0.28 %", "26.86 ms", "26.93 ms"))
    assert [line.startswith("  caution: ") for line in lines] == [False, True]


def test_json_has_margins_and_modes(output: RunCommand) -> None:
    stable = json.loads(output("stability", VERIFICATION, "--json"))
    assert (stable["scenario"], stable["stable"], stable["growing_roots"]) == (VERIFICATION, True, 0)
    assert stable["critical_delay_s"] > stable["delay_s"] == pytest.approx(0.010)
    assert stable["delay_margin"] == pytest.approx(1.0 - stable["delay_s"] / stable["critical_delay_s"])
    assert [mode["stable"] for mode in stable["modes"]] == [True] * 4
    assert set(stable["modes"][0]["apparent_stiffness"]) == {"story_1"}
    unstable = json.loads(output("stability", VERIFICATION, *UNSTABLE, "--json"))
    assert unstable["stable"] is False
    assert unstable["critical_delay_s"] < unstable["delay_s"]
    assert unstable["least_gain"] is None


@pytest.mark.parametrize(
    "suffix", [".svg", *(pytest.param(kind, marks=pytest.mark.soak) for kind in (".png", ".pdf"))]
)
def test_figure_is_written(suffix: str, output: RunCommand) -> None:
    text = output("stability", VERIFICATION, "--figure", f"stability{suffix}")
    assert text.endswith(f"figure: stability{suffix}\n")
    assert Path(f"stability{suffix}").stat().st_size > 10_000


@pytest.mark.parametrize("overrides", [[], ["compensator.type=none"], ["axes.story_1.actuator.delay=0.0"]])
def test_figure_shows_computed_stability(overrides: list[str]) -> None:
    """The damping of each mode is on its curve; the curve of the critical mode is zero at the limit."""
    result = judge_loop(sampled_loop(override(load(VERIFICATION), overrides)))
    stiffness, damping, delay, frequency = figures.stability(result, VERIFICATION).axes
    assert stiffness.get_lines()[1].get_ydata()[0] == pytest.approx(1.0)
    assert damping.get_lines()[1].get_ydata()[0] == pytest.approx(0.0)
    for panel, value in ((delay, 1e3 * result.delay), (frequency, 1.0)):
        curves = {line.get_label(): line for line in panel.get_lines()}
        for number, mode in enumerate(result.modes, 1):
            (curve,) = [line for label, line in curves.items() if label.startswith(f"mode {number}:")]
            assert np.interp(value, *curve.get_data()) == pytest.approx(100.0 * mode.loop_damping_ratio, abs=0.05)
    limits = {delay: result.critical_delay and 1e3 * result.critical_delay}
    limits[frequency] = result.frequency_factor and result.frequency_factor.value
    for panel, limit in limits.items():
        if limit:
            lines = [line.get_data() for line in panel.get_lines() if len(line.get_xdata()) > 2]
            assert min(abs(np.interp(limit, x, y)) for x, y in lines) < 0.2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["predefined_sine"], "structure: missing"),
        ([VERIFICATION, "--figure", "stability.docx"], "stability.docx"),
        ([VERIFICATION, "--set", "compensator.order=9"], "compensator.order"),
        (["no_such_scenario"], "unknown scenario"),
    ],
)
def test_stability_refuses_invalid_arguments(arguments: list[str], reason: str, refusal: RunCommand) -> None:
    error = refusal("stability", *arguments)
    assert reason in error
    assert len(error.splitlines()) == 1
    assert not list(Path().iterdir())


# cite

ALWAYS_CITED = ["mercan_2007", "mosqueda_2007", "guo_2014"]


def test_publications_equal_sources_of_components() -> None:
    sources = {
        source
        for family in registry.FAMILIES
        for name in registry.built_in(family)
        if "ros2_control" not in name  # needs ROS
        for source in getattr(registry.load(family, name), "SOURCES", ())
    }
    assert sources | {source for _, source in lookup.EVALUATION} == set(lookup.publications())


def test_publications_have_required_fields() -> None:
    for key, text in lookup.publications().items():
        fields = dict(re.findall(r"^  (\w+) = \{(.+)\},$", text, re.M))
        assert {"author", "title", "year"} <= fields.keys(), key
        assert {"journal", "booktitle", "school", "institution"} & fields.keys(), key
        assert key.endswith(fields["year"]), key
        assert text.count("{") == text.count("}"), key


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["rths_benchmark_2020"], ["silva_2020"]),
        (["chen_ricles_2010"], ["chen_ricles_2010", "wen_1980", "chen_ricles_2008"]),
        (["tadc_sine"], ["chen_ricles_2010", "wang_2019", "horiuchi_1996"]),
        (["phillips_spencer_2012", "--case", "d"], ["phillips_spencer_2012", "spencer_1997", "dyke_1996"]),
        (["marths_2023"], ["newmark_1959", "condori_uribe_2023"]),
    ],
)
def test_cite_prints_methods_of_scenario(arguments: list[str], expected: list[str], output: RunCommand) -> None:
    first, *keys = re.findall(r"^@\w+\{(\w+),$", output("cite", *arguments), re.M)
    assert first == "rths_nodes"
    assert sorted(keys) == sorted([*expected, *ALWAYS_CITED])


def test_component_may_contain_its_own_entry(
    output: RunCommand, refusal: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["cite", "predefined_sine", "--set", "compensator={type: none}"]
    entry = "@misc{mine_2026,\n  title = {Mine},\n}"
    monkeypatch.setattr(registry.load("compensator", "none"), "SOURCES", (entry,), raising=False)
    assert f"% compensator.type = none\n{entry}\n" in output(*command)
    monkeypatch.setattr(registry.load("compensator", "none"), "SOURCES", ("silva_2021",))
    assert mentions(refusal(*command), "compensator.type", "unknown", "silva_2021", "silva_2020")
