# SPDX-License-Identifier: Apache-2.0
"""What the package says of itself is true: licence, version, maintainer, dependencies."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from rths_nodes.app.commands.cite import publications
from rths_nodes.app.procedure import signatures
from rths_nodes.app.studies import entries
from rths_nodes.core import registry
from rths_nodes.core.parameters import declared
from rths_nodes.core.version import __version__
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.models import file as model_file
from rths_nodes.recording import commissioning, procedure

ROOT = Path(__file__).resolve().parents[1]
LICENCE = "SPDX-License-Identifier: Apache-2.0"
FOLDERS = [
    ".ci",
    ".github",
    "action",
    "benchmarks",
    "config",
    "doc",
    "examples",
    "launch",
    "msg",
    "rths_nodes",
    "scripts",
    "srv",
    "test",
]
SOURCES = {".py", ".c", ".cpp", ".h", ".hpp", ".css", ".js", ".html", ".j2", ".msg"}
NAMES = {"Makefile", "CMakeLists.txt"}
OTHERS = {"uPlot.iife.min.js", "uPlot.min.css"}
"""Sources of other projects, which stand here as they are, beside their licences."""
PACKAGES = [ROOT / "package.xml", *sorted((ROOT / "examples").glob("*/package.xml"))]
TOOLS = ("test", "lint", "colcon", "doc")
"""Extras of who works on the package."""
NOWHERE = ".invalid"
"""End of addresses that cannot exist (RFC 2606)."""


def sources() -> Iterator[Path]:
    """Every source file of the checkout; what is built and kept below it has other places."""
    for path in [*ROOT.iterdir(), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]:
        program = path.parent.name in ("scripts", ".ci")
        named = path.suffix in SOURCES or path.name in NAMES or (program and not path.suffix)
        if named and path.is_file() and path.name not in OTHERS:
            yield path


def names_its_licence(path: Path) -> bool:
    """Look at the first two lines: a program begins with its interpreter, a page with its type."""
    return any(LICENCE in line for line in path.read_text(encoding="utf-8").splitlines()[:2])


def test_every_source_file_names_its_licence(tmp_path: Path) -> None:
    found = list(sources())
    assert {path.suffix for path in found} >= SOURCES
    assert [str(path.relative_to(ROOT)) for path in found if not names_its_licence(path)] == []
    (bare := tmp_path / "bare.py").write_text("import os\n")
    assert not names_its_licence(bare)


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_what_is_not_ours_has_its_licence_beside_it(name: str) -> None:
    (file,) = (ROOT / "rths_nodes").rglob(name)
    assert "MIT" in (file.parent / "uPlot.LICENSE").read_text(encoding="utf-8")


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def codemeta() -> dict[str, Any]:
    data: dict[str, Any] = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
    return data


def test_the_version_is_the_same_everywhere() -> None:
    catkin = pytest.importorskip("catkin_pkg.changelog", reason="catkin-pkg is not installed here")
    changelog = catkin.get_changelog_from_path(str(ROOT / "CHANGELOG.rst"))
    newest = next(version for version, _, _ in changelog.foreach_version(reverse=True))
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    told = ElementTree.parse(PACKAGES[0]).findtext("version")
    stated = [told, pyproject()["project"]["version"], cited["version"], newest, codemeta()["version"]]
    assert stated == [__version__] * 5


def test_the_licence_is_the_same_everywhere() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    told = [ElementTree.parse(path).findtext("license") for path in PACKAGES]
    linked = codemeta()["license"].removeprefix("https://spdx.org/licenses/")
    assert {cited["license"], pyproject()["project"]["license"], linked, *told} == {"Apache-2.0"}
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", PACKAGES, ids=lambda path: path.parent.name)
def test_a_manifest_is_valid(file: Path) -> None:
    catkin = pytest.importorskip("catkin_pkg.package", reason="catkin-pkg is not installed here")
    warnings: list[str] = []
    catkin.parse_package(str(file), warnings=warnings).validate(warnings=warnings)
    assert warnings == []


def test_an_address_that_nobody_reads_bars_a_release_in_words() -> None:
    told = [element.get("email") for path in PACKAGES for element in ElementTree.parse(path).iter("maintainer")]
    addresses = {*told, *(entry["email"] for entry in pyproject()["project"]["maintainers"])}
    (address,) = addresses
    barred = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## A release")[2]
    assert address.endswith(NOWHERE) == (address in barred)


def layouts() -> dict[str, int]:
    """Every layout that files, messages or datagrams have, with its version in the code."""
    found = {
        "scenario file": int(declared(Scenario)["version"].at_most or 0),
        "rig file": int(declared(RigFile)["version"].at_most or 0),
        "model of a rig": model_file.VERSION,
        "record of a procedure": procedure.VERSION,
        "commissioning of a rig": commissioning.VERSION,
        "signatures for cautions": signatures.VERSION,
        "entry of a scoreboard": entries.VERSION,
        "datagrams of the port `udp`": datagrams.VERSION,
    }
    for path in (ROOT / "msg").glob("*.msg"):
        head = "".join(line for line in path.read_text(encoding="utf-8").splitlines(True) if line[0] == "#")
        (version,) = re.findall(r"Version (\d+)", head)
        found[f"`msg/{path.stem}`"] = int(version)
    return found


def test_the_versions_of_layouts_are_those_that_the_page_on_stability_tells() -> None:
    page = (ROOT / "doc" / "stability.md").read_text(encoding="utf-8")
    table = page.partition("| layout | version |\n|---|---|\n")[2].partition("\n\n")[0]
    told = dict(re.fullmatch(r"\| (.*) \| (\d+) \|", row).groups() for row in table.splitlines())
    assert {name: int(version) for name, version in told.items()} == layouts()
    assert ", ".join(f"{code.value} {code.outcome}" for code in ExitCode) in page


def test_the_tests_that_the_page_on_stability_names_are_there() -> None:
    named = re.findall(r"`(test/[\w/]+\.py)`", (ROOT / "doc" / "stability.md").read_text(encoding="utf-8"))
    assert len(named) > 8
    assert [name for name in named if not (ROOT / name).is_file()] == []


def table(page: str, title: str) -> list[list[str]]:
    """The rows of the table below a title of doc/dependencies.md."""
    text = (ROOT / "doc" / page).read_text(encoding="utf-8")
    body = re.split(r"^## ", text.partition(f"## {title}\n")[2], flags=re.M)[0]
    rows = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("|")]
    assert {len(row) for row in rows[2:]} == {len(rows[0])}
    return rows[2:]


def names_of(requirements: list[str]) -> set[str]:
    """Names of packages, without versions and extras."""
    return {re.split(r"[<>=!;\[ ]", requirement)[0] for requirement in requirements}


def column(rows: list[list[str]], number: int) -> set[str]:
    """The entries of a column, of which several may stand in a cell."""
    return {name for row in rows for name in row[number].split(", ")}


def test_the_table_of_dependencies_has_every_package_of_pip() -> None:
    data = pyproject()
    groups, extras = data["dependency-groups"], data["project"]["optional-dependencies"]
    assert column(table("dependencies.md", "To run"), 0) == names_of(groups["run"])
    asked = table("dependencies.md", "On request")
    for_use = {name: packages for name, packages in extras.items() if name not in TOOLS}
    assert {row[1]: {row[0]} for row in asked} == {name: names_of(row) for name, row in for_use.items()}
    others = column(table("dependencies.md", "To test, to build, to document"), 0)
    wanted = {package for name in TOOLS for package in names_of(extras[name])}
    assert wanted - column(asked, 0) == {name for name in others if name in wanted}
    build = names_of(data["build-system"]["requires"])
    assert {name for name in build if not name.startswith("ros-")} <= others | names_of(groups["run"])
    of_ros = {name for name in column(table("dependencies.md", "Of ROS 2"), 0) if name.startswith("ros-")}
    for distribution in ("jazzy", "kilted"):
        assert names_of(groups[distribution]) <= of_ros


def test_one_installation_has_all_packages_of_the_readme() -> None:
    """The page of a test in the browser, studies, reports, recordings; with and without rosdep."""
    assert {"aiohttp", "joblib", "matplotlib", "mcap"} <= names_of(pyproject()["dependency-groups"]["run"])
    keys = {element.text for element in ElementTree.parse(PACKAGES[0]).iter("exec_depend")}
    assert {"python3-aiohttp", "python3-joblib", "python3-matplotlib", "mcap-ros2-support"} <= keys


def test_the_workflow_calls_the_same_checks() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert {"run": ".ci/run"} in workflow["jobs"]["run"]["steps"]


def test_the_table_of_dependencies_has_every_key_of_rosdep() -> None:
    kinds = {"depend", "exec_depend", "test_depend", "buildtool_depend"}
    told = {element.text for element in ElementTree.parse(PACKAGES[0]).getroot() if element.tag in kinds}
    keys = column(table("dependencies.md", "To run"), 1) | column(table("dependencies.md", "Of ROS 2"), 1)
    for title in ("On request", "To test, to build, to document"):
        keys |= column(table("dependencies.md", title), 2)
    wanted = {key for key in keys if key != "none" and not key.startswith("brought by")}
    assert told <= wanted
    assert wanted - told == {"python3-h5py"}, "optional: no key of package.xml asks for them"


def test_the_page_on_citing_has_every_publication() -> None:
    rows = {row[0].strip("`"): row[2] for row in table("citing.md", "Publications")}
    assert list(rows) == [key for key in publications() if key in rows]
    assert rows.keys() == publications().keys()
    years = [key.rpartition("_")[2] for key in rows]
    assert years == sorted(years)
    for family in registry.FAMILIES:
        for name in registry.built_in(family):
            for source in getattr(registry.load(family, name), "SOURCES", ()):
                assert f"`{name}`" in rows[source]


def test_a_test_file_can_be_loaded_by_its_name_alone() -> None:
    """As launch_testing does wherever ROS 2 has it: with every file, before pytest does in its own way."""
    files = list((ROOT / "test").rglob("test_*.py"))
    names = Counter(file.name for file in files)
    assert [name for name, count in names.items() if count > 1] == []
    assert [str(file) for file in files if re.search(r"^\s*from \.", file.read_text("utf-8"), re.MULTILINE)] == []
