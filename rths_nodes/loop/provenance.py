# SPDX-License-Identifier: Apache-2.0
"""Provenance of a recording: information about its run, and versions and hashes of the code."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache
from pathlib import Path

from rths_nodes.core import registry, yaml_text
from rths_nodes.core.errors import ConfigError, package_of
from rths_nodes.core.inputs import ENDINGS, modules_of
from rths_nodes.core.resources import PACKAGE
from rths_nodes.core.text_files import version_of
from rths_nodes.core.validation import walk, walk_declared
from rths_nodes.core.version import __version__
from rths_nodes.loop.scenario.schema import Scenario, rig_kind

PACKAGE_FOLDER = Path(__file__).resolve().parents[1]
INSTALLED = ("site-packages", "dist-packages")
LONGEST_GIT_S = 10.0


def package_files() -> list[Path]:
    return _below(PACKAGE_FOLDER, ("",))


def files_of(module: str) -> list[Path]:
    top = sys.modules.get(package_of(module))
    if folders := list(getattr(top, "__path__", ())):
        return [file for folder in folders for file in _below(Path(folder), ENDINGS)]
    module_file = getattr(sys.modules.get(module), "__file__", None)
    if module_file is None:
        return []
    path = Path(module_file)
    return [path] if path.parent.name in INSTALLED else sorted(modules_of(path))


def _below(folder: Path, endings: Iterable[str]) -> list[Path]:
    paths = (path for path in folder.rglob("*") if path.name.endswith(tuple(endings)) and path.is_file())
    return sorted(path for path in paths if "__pycache__" not in path.parts)


def hashes(paths: Iterable[str | Path]) -> dict[str, str]:
    digests = {}
    for path in map(Path, paths):
        digests[str(path)] = ""
        with suppress(OSError):
            digests[str(path)] = _hash(path, *version_of(path))
    return digests


@cache
def _hash(path: Path, *now: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def combined(digests: Mapping[str, str]) -> str:
    root = os.path.commonpath([os.path.dirname(path) for path in digests]) if digests else ""
    return summary({os.path.relpath(path, root): value for path, value in digests.items()})


def summary(digests: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()[:16]


@cache
def version() -> str:
    """Return the package version. In a Git checkout, add the commit, and a remark if files have changed."""
    commit = _git("rev-parse", "HEAD") if _git("ls-files", "--", "__init__.py") else ""
    if not commit:
        return __version__
    changed = _git("status", "--porcelain", "--", ".")
    return f"{__version__}, commit {commit[:12]}{', with changes' if changed else ''}"


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PACKAGE_FOLDER), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=LONGEST_GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def information(
    scenario: Scenario,
    run_id: str,
    host: str,
    pace: str,
    faults: Iterable[str] = (),
    actuator_nodes: str = "",
    engine: str = "",
    library: str = "",
    recorded: bool = True,
) -> dict[str, str]:
    """Return information about a run as strings, by name. The scenario is included if ``recorded`` is true."""
    layout = {"actuator_nodes": actuator_nodes, "engine": engine, "library": library}
    injected = " ".join(faults)
    sections = scenario.data().items() if recorded else ()
    text = "".join(_section(json.dumps({name: value})) for name, value in sections)
    return {
        **({"scenario": text} if recorded else {}),
        "scenario_hash": scenario.shared_hash(run_id),
        "run_id": run_id,
        "rig_kind": rig_kind(scenario),
        "host": host,
        "pace": pace,
        **{name: value for name, value in layout.items() if value},
        "version": __version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **({"faults": injected} if injected else {}),
    }


@lru_cache(maxsize=256)  # all plants of a study have most sections in common
def _section(text: str) -> str:
    return yaml_text.dump(json.loads(text))


@dataclass(frozen=True)
class Code:
    """Code of a test: versions and hashes for display (``names``), hashes by path, and the receiver's build."""

    names: Mapping[str, str]
    files: Mapping[str, str]
    build: str = ""

    @classmethod
    def of(cls, scenario: Scenario, build: str = "") -> Code:
        """Return the current code of ``scenario``: this package, packages of components, and input files."""
        ours = hashes(package_files())
        names, files = {PACKAGE: version(), f"{PACKAGE}, files": combined(ours)}, dict(ours)
        for module in sorted(_foreign_modules(scenario)):
            theirs = hashes(files_of(module))
            names[module], files = combined(theirs), files | theirs
        for path, part in walk(scenario):
            with suppress(ConfigError):  # an invalid part is refused later, when it is built
                if read := hashes(part.reads()):
                    names[path], files = combined(read), files | read
        return cls(names, files).behind(build)

    def behind(self, build: str) -> Code:
        return replace(self, names={**self.names, "receiver": build}, build=build) if build else self

    @cached_property
    def hash(self) -> str:
        return summary(self.names)

    def changed(self, build: str) -> list[str]:
        now = hashes(self.files)
        changed = [path for path, digest in self.files.items() if now[path] != digest]
        if build != self.build:
            changed.append(f"the receiver reports the build {build or 'none'} instead of {self.build or 'none'}")
        return changed


def _foreign_modules(scenario: Scenario) -> set[str]:
    modules = set()
    for _, part, declared in walk_declared(scenario):
        if declared and declared[-1].family:
            with suppress(ConfigError):  # a component of a recording may not be installed here
                modules.add(registry.class_of(declared[-1].family, part).__module__)
    return {module for module in modules if package_of(module) != PACKAGE}
