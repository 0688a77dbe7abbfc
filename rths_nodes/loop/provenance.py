# SPDX-License-Identifier: Apache-2.0
"""Provenance of a recording: what it says about its run, whoever records it; and what computes a test."""

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
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.inputs import ENDINGS, modules_of
from rths_nodes.core.resources import PACKAGE
from rths_nodes.core.text_files import version_of
from rths_nodes.core.validation import walk, walk_declared
from rths_nodes.core.version import __version__
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.titles import rig_kind

PACKAGE_FOLDER = Path(__file__).resolve().parents[1]
INSTALLED = ("site-packages", "dist-packages")
"""Folders that modules share which do not belong together."""
LONGEST_GIT_S = 10.0


def package_files() -> list[Path]:
    """Every file of this package but what Python has compiled."""
    return _below(PACKAGE_FOLDER, ("",))


def package_of(module: str) -> str:
    """The outermost package in which ``module`` stands, or the module itself."""
    return module.partition(".")[0]


def files_of(module: str) -> list[Path]:
    """The files of the outermost package in which ``module`` stands, which is imported.

    Of a module alone it and what it imports from beside it; empty for one that has no file.
    """
    top = sys.modules.get(package_of(module))
    if folders := list(getattr(top, "__path__", ())):
        return [file for folder in folders for file in _below(Path(folder), ENDINGS)]
    own = getattr(sys.modules.get(module), "__file__", None)
    if own is None:
        return []
    path = Path(own)
    return [path] if path.parent.name in INSTALLED else sorted(modules_of(path))


def _below(folder: Path, endings: Iterable[str]) -> list[Path]:
    """The files below ``folder`` that end in one of the ``endings``, but what Python has compiled."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [Path(place, name) for name in names if name.endswith(tuple(endings))]
    return sorted(path for path in found if path.is_file())


def hashes(paths: Iterable[str | Path]) -> dict[str, str]:
    """Hash of what each file contains, by its path; empty where it cannot be read, or is there no more."""
    return {str(path): _hash_now(path if isinstance(path, Path) else Path(path)) for path in paths}


def _hash_now(path: Path) -> str:
    try:
        return _hash(path, *version_of(path))
    except OSError:
        return ""


@cache
def _hash(path: Path, *now: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def combined(found: Mapping[str, str]) -> str:
    """A short hash of the hashes of files, wherever the folder stands that they share."""
    root = os.path.commonpath([os.path.dirname(path) for path in found]) if found else ""
    return summary({os.path.relpath(path, root): value for path, value in found.items()})


def summary(found: Mapping[str, str]) -> str:
    """A short hash of many words, each with its name."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


@cache
def version() -> str:
    """Version of this package, and the commit where it is a checkout, with a remark where files differ from it."""
    commit = _git("rev-parse", "HEAD") if _git("ls-files", "--", "__init__.py") else ""
    if not commit:
        return __version__
    changed = _git("status", "--porcelain", "--", ".")
    return f"{__version__}, commit {commit[:12]}{', with changes' if changed else ''}"


def _git(*words: str) -> str:
    command = ["git", "-C", str(PACKAGE_FOLDER), *words]
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
    recorded: bool = True,
) -> dict[str, str]:
    """The scenario, if it is to be ``recorded``, what the run was called, where and with which version it began.

    ``actuator_nodes`` is empty on the host embedded, which has no nodes, and ``engine`` on the others.
    """
    layout = {"actuator_nodes": actuator_nodes} if actuator_nodes else {}
    layout |= {"engine": engine} if engine else {}
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
        **layout,
        "version": __version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **({"faults": injected} if injected else {}),
    }


@lru_cache(maxsize=256)  # the plants of a study differ in few of them
def _section(text: str) -> str:
    return yaml_text.dump(json.loads(text))


@dataclass(frozen=True)
class Code:
    """With what a scenario is computed: ``names`` for people, ``files``: hash of each by its path; ``build``.

    ``build`` is that of the receiver at the far end of the port, as it reports it; empty where it does not.
    """

    names: Mapping[str, str]
    files: Mapping[str, str]
    build: str = ""

    @classmethod
    def of(cls, scenario: Scenario, build: str = "") -> Code:
        """As it stands in its files now: this package, those of others with a component in it, what they read."""
        ours = hashes(package_files())
        names, files = {PACKAGE: version(), f"{PACKAGE}, files": combined(ours)}, dict(ours)
        for module in sorted(_foreign_modules(scenario)):
            theirs = hashes(files_of(module))
            names[module], files = combined(theirs), files | theirs
        for place, part in walk(scenario):
            with suppress(ConfigError):  # is refused when it is built
                if read := hashes(part.reads()):
                    names[place], files = combined(read), files | read
        return cls(names, files).behind(build)

    def behind(self, build: str) -> Code:
        """The same with the ``build`` of the receiver."""
        return replace(self, names={**self.names, "receiver": build}, build=build) if build else self

    @cached_property
    def hash(self) -> str:
        """All of it, wherever it is installed."""
        return summary(self.names)

    def changed(self, build: str) -> list[str]:
        """Say in words what of the code has changed; ``build`` is that of the receiver now."""
        now = hashes(self.files)
        found = [path for path, known in self.files.items() if now[path] != known]
        if build != self.build:
            found.append(f"the receiver reports the build {build or 'none'}, no more {self.build or 'none'}")
        return found


def _foreign_modules(scenario: Scenario) -> set[str]:
    found = set()
    for _, part, declared in walk_declared(scenario):
        if declared and declared[-1].family:
            with suppress(ConfigError):  # one of a recording that is not installed here
                found.add(registry.class_of(declared[-1].family, part).__module__)
    return {module for module in found if package_of(module) != PACKAGE}
