# SPDX-License-Identifier: Apache-2.0
"""What only an installation can show: every module, program and data file is where ROS 2 and pip look for it.

Run against the package as installed (``make test``, ``make colcon``), from an empty folder, in processes of their
own: the modules of the checkout are not on their path.
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


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """``command`` in ``folder``, with the checkout off the path."""
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry != str(ROOT)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the installed package."""
    code = "import json, pathlib, rths_nodes; print(json.dumps(str(pathlib.Path(rths_nodes.__file__).parent)))"
    done = run(sys.executable, "-c", code, folder=tmp_path_factory.mktemp("empty"))
    assert done.returncode == 0, done.stderr
    return Path(json.loads(done.stdout))


@pytest.fixture(scope="module")
def prefix(installed: Path) -> Path:
    """The folder below which ``lib/rths_nodes`` and ``share/rths_nodes`` stand."""
    found = [folder for folder in installed.parents if (folder / "share" / "rths_nodes").is_dir()]
    assert found, f"no share/rths_nodes above {installed}"
    return found[0]


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a package but what Python and the message generator put there."""
    named = ((str(path.relative_to(folder)), path) for path in folder.rglob("*") if path.is_file())
    made = ("msg/", "_rths_nodes_s")
    kept = ((name, path) for name, path in named if not name.startswith(made))
    return {name: path.read_bytes() for name, path in kept if path.suffix not in (".pyc", ".so")}


def test_every_file_of_the_package_is_installed_and_no_stale_one(installed: Path) -> None:
    assert installed != ROOT / "rths_nodes"
    mine, theirs = files(ROOT / "rths_nodes"), files(installed)
    assert sorted(mine.keys() ^ theirs.keys()) == []
    assert [name for name, data in mine.items() if theirs[name] != data] == []


def test_the_messages_are_built(installed: Path, tmp_path: Path) -> None:
    names = [path.stem for path in sorted((ROOT / "msg").glob("*.msg"))]
    code = (
        "from rclpy.serialization import deserialize_message, serialize_message\n"
        "from rths_nodes import msg\n"
        f"kinds = [getattr(msg, name) for name in {names!r}]\n"
        "assert all(deserialize_message(serialize_message(kind()), kind) == kind() for kind in kinds)\n"
    )
    done = run(sys.executable, "-c", code, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("folder", ["launch", "config", "examples", "msg"])
def test_data_files_are_installed(folder: str, prefix: Path) -> None:
    there = prefix / "share" / "rths_nodes"
    mine = {str(path.relative_to(ROOT)): path for path in (ROOT / folder).rglob("*.*") if path.suffix != ".pyc"}
    assert mine
    assert [name for name, path in mine.items() if (there / name).read_bytes() != path.read_bytes()] == []
    assert (there / "package.xml").is_file()


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_programs_of_ros2_run_are_there_and_refuse_what_makes_no_sense(
    program: str, prefix: Path, tmp_path: Path
) -> None:
    file = prefix / "lib" / "rths_nodes" / program
    assert os.access(file, os.X_OK)
    done = run(sys.executable, str(file), "--no-such-argument", folder=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["embedded", "composed", "processes"])
def test_a_shipped_scenario_runs_on_every_host(host: str, prefix: Path, tmp_path: Path) -> None:
    file = str(prefix / "lib" / "rths_nodes" / "rths")
    options = ["--set", "duration=0.2", "--host", host, "--json"]
    done = run(sys.executable, file, "run", "predefined_sine", *options, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] == "finished"


def test_pip_uninstall_leaves_no_folder_behind(prefix: Path, tmp_path: Path) -> None:
    """Pip takes away a folder where all is ours, if a file stands directly in it."""
    code = (  # colcon has neither pip's files nor its mark
        "import json\nfrom importlib.metadata import distribution\n"
        "mine = distribution('rths_nodes')\n"
        "files = (mine.files or ()) if 'pip' in (mine.read_text('INSTALLER') or '') else ()\n"
        "print(json.dumps([str(mine.locate_file(file).resolve()) for file in files]))"
    )
    done = run(sys.executable, "-c", code, folder=tmp_path)
    if done.returncode or "[]" in done.stdout:
        pytest.skip("not installed by pip")
    paths, top = {Path(path) for path in json.loads(done.stdout)}, prefix.resolve()
    above = {folder for path in paths for folder in path.parents if top in folder.parents}

    def is_ours(folder: Path) -> bool:
        files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
        return folder in above and paths.issuperset(files)

    ours = {folder for folder in above if is_ours(folder)}
    highest = {folder for folder in ours if folder.parent not in ours}
    assert top / "share" / "rths_nodes" in highest
    assert sorted(str(folder) for folder in highest if not any(path.parent == folder for path in paths)) == []
