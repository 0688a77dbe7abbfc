# SPDX-License-Identifier: Apache-2.0
"""Tests of the package's statements: licence, version, maintainer, dependencies, layout versions, type hints."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from rths_nodes.app.commands.lookup import publications
from rths_nodes.app.studies import competition
from rths_nodes.core import registry
from rths_nodes.core.parameters import declared
from rths_nodes.core.version import __version__
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics import loading_model
from rths_nodes.recording import commissioning, procedure, signatures

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    *(".ci", ".github", "action", "benchmarks", "config", "doc", "examples", "launch", "msg", "rths_nodes"),
    *("scripts", "srv", "test"),
)
SUFFIXES = {".py", ".c", ".cpp", ".h", ".hpp", ".css", ".js", ".html", ".j2", ".msg"}
THIRD_PARTY = ("uPlot.iife.min.js", "uPlot.min.css")
"""Unchanged sources of other projects, each next to its licence."""
MANIFESTS = [ROOT / "package.xml", *sorted((ROOT / "examples").glob("*/package.xml"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CODEMETA = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
DEVELOPMENT = ("test", "lint", "colcon", "doc")
"""Extras for work on the package itself."""


def is_source(path: Path) -> bool:
    program = path.parent.name in ("scripts", ".ci") and not path.suffix
    return path.suffix in SUFFIXES or path.name in ("Makefile", "CMakeLists.txt") or program


def states_licence(path: Path) -> bool:
    """True if one of the first two lines has it; the first may state an interpreter or a document type."""
    lines = path.read_text(encoding="utf-8").splitlines()[:2]
    return any("SPDX-License-Identifier: Apache-2.0" in line for line in lines)


def test_source_files_state_licence(tmp_path: Path) -> None:
    paths = [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    sources = [path for path in paths if is_source(path) and path.is_file() and path.name not in THIRD_PARTY]
    assert {path.suffix for path in sources} >= SUFFIXES
    assert [str(path.relative_to(ROOT)) for path in sources if not states_licence(path)] == []
    (bare := tmp_path / "bare.py").write_text("import os\n")
    assert not states_licence(bare)


@pytest.mark.parametrize("name", THIRD_PARTY)
def test_third_party_file_has_licence_next_to_it(name: str) -> None:
    (file,) = (ROOT / "rths_nodes").rglob(name)
    assert "MIT" in (file.parent / "uPlot.LICENSE").read_text(encoding="utf-8")


def test_version_is_same_everywhere() -> None:
    catkin = pytest.importorskip("catkin_pkg.changelog", reason="catkin-pkg is not installed here")
    changelog = catkin.get_changelog_from_path(str(ROOT / "CHANGELOG.rst"))
    newest = next(version for version, _, _ in changelog.foreach_version(reverse=True))
    manifest = ElementTree.parse(MANIFESTS[0]).findtext("version")
    stated = [manifest, PROJECT["project"]["version"], CITATION["version"], newest, CODEMETA["version"]]
    assert stated == [__version__] * 5


def test_licence_is_same_everywhere() -> None:
    licences = {ElementTree.parse(path).findtext("license") for path in MANIFESTS}
    licences |= {CITATION["license"], PROJECT["project"]["license"]}
    assert licences | {CODEMETA["license"].removeprefix("https://spdx.org/licenses/")} == {"Apache-2.0"}
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda path: path.parent.name)
def test_manifest_is_valid(file: Path) -> None:
    catkin = pytest.importorskip("catkin_pkg.package", reason="catkin-pkg is not installed here")
    warnings: list[str] = []
    catkin.parse_package(str(file), warnings=warnings).validate(warnings=warnings)
    assert warnings == []


def test_release_steps_mention_placeholder_address() -> None:
    """An address under ``.invalid`` cannot exist (RFC 2606), so that CONTRIBUTING.md requires another one."""
    maintainers = [
        entry.get("email") for path in MANIFESTS for entry in ElementTree.parse(path).iter("maintainer")
    ]
    (address,) = {*maintainers, *(entry["email"] for entry in PROJECT["project"]["maintainers"])}
    steps = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## A release")[2]
    assert address.endswith(".invalid") == (address in steps)


def layouts() -> dict[str, int]:
    """Layouts of files, messages and datagrams, with their versions in the code."""
    versions = {
        "scenario file": int(declared(Scenario)["version"].at_most or 0),
        "rig file": int(declared(RigFile)["version"].at_most or 0),
        "model of a rig": loading_model.VERSION,
        "record of a procedure": procedure.VERSION,
        "commissioning of a rig": commissioning.VERSION,
        "signatures for cautions": signatures.VERSION,
        "entry of a scoreboard": competition.VERSION,
        "datagrams of the port `udp`": datagrams.VERSION,
    }
    for path in (ROOT / "msg").glob("*.msg"):
        header = "".join(re.findall(r"^#.*\n", path.read_text(encoding="utf-8"), re.M))
        (version,) = re.findall(r"Version (\d+)", header)
        versions[f"`msg/{path.stem}`"] = int(version)
    return versions


def test_stability_page_states_versions_exit_codes_and_tests() -> None:
    page = (ROOT / "doc" / "stability.md").read_text(encoding="utf-8")
    text = page.partition("| layout | version |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = dict(re.fullmatch(r"\| (.*) \| (\d+) \|", row).groups() for row in text.splitlines())
    assert {name: int(version) for name, version in rows.items()} == layouts()
    assert ", ".join(f"{code.value} {code.outcome}" for code in ExitCode) in page
    tests = re.findall(r"`(test/[\w/]+\.py)`", page)
    assert len(tests) > 8
    assert [path for path in tests if not (ROOT / path).is_file()] == []


def table(page: str, title: str) -> list[list[str]]:
    """Rows of the table below a title of a page in ``doc/``."""
    text = (ROOT / "doc" / page).read_text(encoding="utf-8")
    body = re.split(r"^## ", text.partition(f"## {title}\n")[2], flags=re.M)[0]
    rows = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("|")]
    assert {len(row) for row in rows[2:]} == {len(rows[0])}
    return rows[2:]


def package_names(requirements: list[str]) -> set[str]:
    """Names of packages, without versions and extras."""
    return {re.split(r"[<>=!;\[ ]", requirement)[0] for requirement in requirements}


def column(title: str, number: int) -> set[str]:
    """Entries in a column of a table of doc/dependencies.md; a cell may list several."""
    return {name for row in table("dependencies.md", title) for name in row[number].split(", ")}


RUN, ROS, REQUEST, BUILD = "To run", "Of ROS 2", "On request", "To test, to build, to document"


def test_dependency_tables_list_every_pip_package() -> None:
    groups, extras = PROJECT["dependency-groups"], PROJECT["project"]["optional-dependencies"]
    assert column(RUN, 0) == package_names(groups["run"])
    for_use = {name: package_names(packages) for name, packages in extras.items() if name not in DEVELOPMENT}
    assert {row[1]: {row[0]} for row in table("dependencies.md", REQUEST)} == for_use
    development = {package for name in DEVELOPMENT for package in package_names(extras[name])}
    assert development - column(REQUEST, 0) == column(BUILD, 0) & development
    build = package_names(PROJECT["build-system"]["requires"])
    listed = column(BUILD, 0) | package_names(groups["run"])
    assert {name for name in build if not name.startswith("ros-")} <= listed
    ros = {name for name in column(ROS, 0) if name.startswith("ros-")}
    for distribution in ("jazzy", "kilted"):
        assert package_names(groups[distribution]) <= ros


def test_dependency_tables_list_every_rosdep_key() -> None:
    kinds = {"depend", "exec_depend", "test_depend", "buildtool_depend"}
    keys = {element.text for element in ElementTree.parse(MANIFESTS[0]).getroot() if element.tag in kinds}
    listed = column(RUN, 1) | column(ROS, 1) | column(REQUEST, 2) | column(BUILD, 2)
    listed = {key for key in listed if key != "none" and not key.startswith("brought by")}
    assert keys <= listed
    assert listed - keys == {"python3-h5py"}, "optional: no key of package.xml requires it"


def test_one_installation_has_all_packages_of_readme() -> None:
    """Packages for the live page, studies, reports and recordings, with and without rosdep."""
    assert {"aiohttp", "joblib", "matplotlib", "mcap"} <= package_names(PROJECT["dependency-groups"]["run"])
    keys = {element.text for element in ElementTree.parse(MANIFESTS[0]).iter("exec_depend")}
    assert {"python3-aiohttp", "python3-joblib", "python3-matplotlib", "mcap-ros2-support"} <= keys


def test_workflow_runs_same_checks() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert {"run": ".ci/run"} in workflow["jobs"]["run"]["steps"]


def test_citing_page_lists_every_publication() -> None:
    rows = {row[0].strip("`"): row[2] for row in table("citing.md", "Publications")}
    assert list(rows) == [key for key in publications() if key in rows]
    assert rows.keys() == publications().keys()
    years = [key.rpartition("_")[2] for key in rows]
    assert years == sorted(years)
    for family in registry.FAMILIES:
        for name in registry.built_in(family):
            for source in getattr(registry.load(family, name), "SOURCES", ()):
                assert f"`{name}`" in rows[source]


def test_test_files_load_by_name_alone() -> None:
    """launch_testing, which any installation of ROS 2 may have, loads every file so before pytest does."""
    files = list((ROOT / "test").rglob("test_*.py"))
    names = Counter(file.name for file in files)
    assert [name for name, count in names.items() if count > 1] == []
    assert [str(file) for file in files if re.search(r"^\s*from \.", file.read_text("utf-8"), re.MULTILINE)] == []


SCRIPT = """
import rths_nodes
from rths_nodes.core import Kernel, no_state, number, params


def step(
    k: tuple[float], s: tuple[()], x: float, v: float, a: float, m: float, f: float, rests: bool, preparing: bool
) -> tuple[tuple[()], float]:
    (delay,) = k
    return s, x + delay * v


kernel = Kernel(lambda params, dt: (0.0273,), no_state, step)
scenario = rths_nodes.load("chen_ricles_2010", {"duration": 2}, compensator=kernel)
run = rths_nodes.run(scenario, ["seed=2"], engine="kernels")
error: float = abs(run.target - run.displacement).max()
again: rths_nodes.Run = rths_nodes.read("runs/mine")
again.to_mat("mine.mat")
rths_nodes.overlay({"measured": again, "simulated": run}, "force").set_title("forces")
delay: float = rths_nodes.estimate(again)["story_1"].loading.delay
prediction = rths_nodes.estimate(again, set={"compensator.type": "none"})
worst: float = prediction.indices["predicted"]["story_1"]["max_error_m"]
lag: float = rths_nodes.identify("rths_benchmark_2020", noise={"duration": 10.0}).delay
inverse = rths_nodes.identify("rths_benchmark_2020", purpose="identified_inverse", out="inverse.yaml")
coefficients: float = inverse.coefficients.max()
levels = {"compensator.alpha_es": {"list": [15, 29]}}
study = rths_nodes.study(scenario="chen_ricles_2010", set={"duration": 1.0}, factors=levels, plants=2)
study.plot("max_error_mm").set_title("errors")
best = rths_nodes.tune(scenario, parameters={"compensator.alpha_es": (10.0, 40.0)}, evaluations=8)
values: dict[str, float] = dict(best.values)
board = rths_nodes.scoreboard("rths_benchmark_2020", laws=["none", kernel], plants=0)
stable: bool = rths_nodes.stability(scenario).stable
motion = {"type": "predefined", "history": {"time": run.time, "axis_1": run.displacement[:, 0]}}
rths_nodes.run("predefined_sine", integrator=motion, duration=1.0)
"""


@pytest.mark.timeout(600)
def test_user_script_passes_strict_mypy(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed here")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text(SCRIPT.replace('engine="kernels"', "duration=[2.0]"))
    options = ["--strict", "--follow-imports=silent", f"--config-file={ROOT / 'pyproject.toml'}"]
    command = [sys.executable, "-m", "mypy", f"--cache-dir={tmp_path}", *options, "script.py", "wrong.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in result.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, result.stdout
    assert errors[0].startswith("wrong.py")
    assert "duration" in errors[0]


def test_package_declares_type_hints() -> None:
    assert (ROOT / "rths_nodes" / "py.typed").is_file()
    assert '"py.typed"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
