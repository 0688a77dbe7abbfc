# SPDX-License-Identifier: Apache-2.0
"""Tests of the installed package: modules, programs and data files are where ROS 2 and pip look for them.

Each test uses new processes, which run in an empty folder without the checkout on their path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
pytestmark = [pytest.mark.nodes, pytest.mark.usefixtures("fresh_programs")]

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("rths", "rig", "integrator", "compensator", "actuator", "axis", "monitor", "recorder")


def run_python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in ``folder``, without the checkout on its path."""
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry != str(ROOT)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the installed package."""
    code = "import json, pathlib, rths_nodes; print(json.dumps(str(pathlib.Path(rths_nodes.__file__).parent)))"
    result = run_python("-c", code, folder=tmp_path_factory.mktemp("empty"))
    assert result.returncode == 0, result.stderr
    return Path(json.loads(result.stdout))


@pytest.fixture(scope="module")
def prefix(installed: Path) -> Path:
    """Folder that contains ``lib/rths_nodes`` and ``share/rths_nodes``."""
    folder = next((folder for folder in installed.parents if (folder / "share" / "rths_nodes").is_dir()), None)
    assert folder, f"no share/rths_nodes above {installed}"
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """Files of a package, without those that Python and the message generator create."""
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in paths.items()
        if not name.startswith(("msg/", "_rths_nodes_s")) and path.suffix not in (".pyc", ".so")
    }


def test_installed_package_equals_checkout(installed: Path) -> None:
    assert installed != ROOT / "rths_nodes"
    expected, result = files(ROOT / "rths_nodes"), files(installed)
    assert sorted(expected.keys() ^ result.keys()) == []
    assert [name for name, data in expected.items() if result[name] != data] == []


def test_messages_are_built(installed: Path, tmp_path: Path) -> None:
    names = [path.stem for path in sorted((ROOT / "msg").glob("*.msg"))]
    code = (
        "from rclpy.serialization import deserialize_message, serialize_message\n"
        "from rths_nodes import msg\n"
        f"kinds = [getattr(msg, name) for name in {names!r}]\n"
        "assert all(deserialize_message(serialize_message(kind()), kind) == kind() for kind in kinds)\n"
    )
    result = run_python("-c", code, folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("folder", ["launch", "config", "examples", "msg"])
def test_data_files_are_installed(folder: str, prefix: Path) -> None:
    share = prefix / "share" / "rths_nodes"
    paths = [path for path in (ROOT / folder).rglob("*.*") if path.suffix != ".pyc"]
    assert paths
    assert [p for p in paths if (share / p.relative_to(ROOT)).read_bytes() != p.read_bytes()] == []
    assert (share / "package.xml").is_file()


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_are_installed_and_refuse_unknown_argument(program: str, prefix: Path, tmp_path: Path) -> None:
    file = prefix / "lib" / "rths_nodes" / program
    assert os.access(file, os.X_OK)
    result = run_python(str(file), "--no-such-argument", folder=tmp_path)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("host", ["embedded", "composed", "processes"])
def test_shipped_scenario_runs_on_every_host(host: str, prefix: Path, tmp_path: Path) -> None:
    file = str(prefix / "lib" / "rths_nodes" / "rths")
    options = ["--set", "duration=0.2", "--host", host, "--json"]
    result = run_python(file, "run", "predefined_sine", *options, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["outcome"] == "finished"


def test_pip_uninstall_leaves_no_folder(prefix: Path, tmp_path: Path) -> None:
    """Pip removes a folder with files of the package alone if at least one is directly in it."""
    code = (  # colcon has neither pip's files nor its mark
        "import json\nfrom importlib.metadata import distribution\n"
        "package = distribution('rths_nodes')\n"
        "files = (package.files or ()) if 'pip' in (package.read_text('INSTALLER') or '') else ()\n"
        "print(json.dumps([str(package.locate_file(file).resolve()) for file in files]))"
    )
    result = run_python("-c", code, folder=tmp_path)
    if result.returncode or "[]" in result.stdout:
        pytest.skip("not installed by pip")
    paths, top = {Path(path) for path in json.loads(result.stdout)}, prefix.resolve()
    parents = {folder for path in paths for folder in path.parents if top in folder.parents}

    def belongs_to_package(folder: Path) -> bool:
        return paths.issuperset(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")

    folders = {folder for folder in parents if belongs_to_package(folder)}
    highest = {folder for folder in folders if folder.parent not in folders}
    assert top / "share" / "rths_nodes" in highest
    assert sorted(str(folder) for folder in highest if not any(path.parent == folder for path in paths)) == []
