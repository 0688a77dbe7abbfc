# SPDX-License-Identifier: Apache-2.0
"""``pip install .``: build the package with its CMakeLists.txt, driven by setuptools.

CMake generates and compiles the messages with the ROS 2 wheels of the build environment, and installs into a
staging folder. From there the message module goes into the Python package, everything else (type-support
libraries, share, programs of ``ros2 run``) below the prefix of the environment. pyproject.toml has the metadata.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import ClassVar

from setuptools import Command, Distribution, setup
from setuptools.command.build import build
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

SOURCE = Path(__file__).resolve().parent
BUILD = SOURCE / "build" / "pip"  # next to colcon's build/rths_nodes
DISTRIBUTIONS = ("jazzy", "kilted")  # their pins are in pyproject.toml; each has its own ros-builtin-interfaces
GUARD = "_ROS_WHEELS_BOOTSTRAP_COMPLETE"  # set by the wheels' bootstrapper: LD_LIBRARY_PATH is complete


def ros_prefix() -> Path | None:
    """Return the prefix of the ROS 2 wheels, or None if ROS 2 is sourced instead."""
    for entry in filter(None, sys.path):
        for folder in Path(entry).parents:
            if (folder / "share" / "ament_index").is_dir():
                return folder
    return None


def dependencies() -> list[str]:
    """Return the requirements of the installed package; its messages run only on the ROS 2 of the build."""
    groups = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    try:
        pin = f"ros-builtin-interfaces=={version('ros-builtin-interfaces')}"
    except PackageNotFoundError:  # no wheels: a sourced ROS 2 has the rest
        return groups["run"]
    for name in DISTRIBUTIONS:
        if pin in groups[name]:
            return groups["run"] + groups[name]
    sys.exit(f"rths_nodes: the ROS 2 wheels ({pin}) must belong to {' or '.join(DISTRIBUTIONS)}")


def build_environment(prefix: Path | None) -> dict[str, str]:
    """Return the environment variables by which CMake and the message generators find ROS 2."""
    env = {"HOME": str(BUILD), **os.environ}
    if prefix is None:
        if "AMENT_PREFIX_PATH" not in env:
            sys.exit("rths_nodes: ROS 2 not found: install its wheels, or source it (AMENT_PREFIX_PATH)")
        return env
    libraries = [prefix / "lib", *prefix.glob("lib/python*/site-packages/ros_*.libs")]
    env |= {
        "AMENT_PREFIX_PATH": str(prefix),
        "CMAKE_PREFIX_PATH": str(prefix),
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        "PATH": os.pathsep.join([str(prefix / "bin"), env.get("PATH", os.defpath)]),
        GUARD: "1",
    }
    return env


def fingerprint(prefix: Path | None, env: dict[str, str]) -> str:
    """Return a hash of all that a configured build folder depends on, except files that CMake watches."""
    packages = sorted(f"{d.name}=={d.version}" for d in distributions())
    script = Path(__file__).read_text(encoding="utf-8")
    program = str(shutil.which("cmake", path=env.get("PATH")))  # differs in an isolated build
    parts = [str(SOURCE), str(prefix), sys.executable, sys.version, program, script, *packages]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class BinaryDistribution(Distribution):
    """Distribution with compiled code, although setuptools compiles none of it."""

    def has_ext_modules(self) -> bool:
        return True


class BuildPy(build_py):
    """Build in an empty folder, so that the wheel has no modules deleted from the source."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildInterfaces(Command):
    """Run CMake; put the staged messages into build_lib, the rest into the data files."""

    description = "build the messages with CMake"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = []

    def initialize_options(self) -> None:
        self.build_lib: str | None = None
        self.build_temp: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_lib", "build_lib"), ("build_temp", "build_temp"))

    def run(self) -> None:
        prefix = ros_prefix()
        kept = prefix is None or prefix.samefile(sys.prefix)  # else an isolated, temporary environment
        build_folder = Path(self.build_temp, "cmake" if kept else "cmake-isolated").resolve()
        stage = Path(self.build_temp, "stage").resolve()
        self.cmake(prefix, build_folder, stage)
        (module,) = {path.parent.parent for path in stage.rglob("rths_nodes/msg/__init__.py")}
        target = Path(self.build_lib, "rths_nodes")
        shutil.copytree(module / "msg", target / "msg", dirs_exist_ok=True)
        for library in module.glob("*.so"):
            shutil.copy2(library, target)
        data: dict[str, list[str]] = {}
        for path in sorted(stage.rglob("*")):
            folder = path.parent.relative_to(stage)
            # setuptools installs site-packages; parent_prefix_path names the build environment
            if path.is_file() and module.parent not in path.parents and folder.name != "parent_prefix_path":
                data.setdefault(str(folder), []).append(os.path.relpath(path, SOURCE))
        # pip uninstall removes a folder only if it has had files of its own; the headers are in subfolders
        data.setdefault("include/rths_nodes", []).append("LICENSE")
        self.distribution.data_files = list(data.items())

    def cmake(self, prefix: Path | None, folder: Path, stage: Path) -> None:
        """Configure (from scratch if the environment has changed), build, and install into an empty stage."""
        env = build_environment(prefix)
        stamp, wanted = folder / "rths_nodes.fingerprint", fingerprint(prefix, env)
        if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            options = {
                "CMAKE_BUILD_TYPE": "Release",
                "CMAKE_INSTALL_PREFIX": str(stage),
                "CMAKE_UNITY_BUILD": "ON",  # one source file per target reads its many headers once
                "CMAKE_UNITY_BUILD_BATCH_SIZE": "0",
                "BUILD_TESTING": "OFF",
                "Python3_EXECUTABLE": sys.executable,
            }
            definitions = [f"-D{name}={value}" for name, value in options.items()]
            generator = ["-G", "Ninja"] if shutil.which("ninja", path=env.get("PATH")) else []
            cmake("-S", str(SOURCE), "-B", str(folder), *generator, *definitions, env=env)
            stamp.write_text(wanted, encoding="utf-8")
        shutil.rmtree(stage, ignore_errors=True)
        cmake("--build", str(folder), "--parallel", str(os.cpu_count() or 1), env=env)
        cmake("--install", str(folder), env=env)


def cmake(*arguments: str, env: dict[str, str]) -> None:
    """Run CMake; a failure ends the installation, below the messages of CMake."""
    program = shutil.which("cmake", path=env.get("PATH"))
    if program is None:
        sys.exit("rths_nodes: cmake not found")
    subprocess.run([program, *arguments], env=env, check=True)


class Build(build):
    """Build the messages, too."""

    sub_commands: ClassVar = [*build.sub_commands, ("build_interfaces", None)]


class NoEditable(editable_wheel):
    """Refuse an editable installation: the type-support libraries would be missing."""

    def run(self) -> None:
        sys.exit("rths_nodes: 'pip install -e' is not supported; use 'colcon build --symlink-install'")


BUILD.mkdir(parents=True, exist_ok=True)
setup(
    install_requires=dependencies(),
    distclass=BinaryDistribution,
    cmdclass={
        "build": Build,
        "build_py": BuildPy,
        "build_interfaces": BuildInterfaces,
        "editable_wheel": NoEditable,
    },
    options={
        "build": {"build_base": str(BUILD.relative_to(SOURCE))},
        "egg_info": {"egg_base": str(BUILD.relative_to(SOURCE))},
    },
)
