"""What a recording says about the run that it is of, whoever records it; and what computes a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

from rths_nodes.core import code, registry, yaml_text
from rths_nodes.core.checks import reads_of
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.resources import PACKAGE
from rths_nodes.core.strict import walk, walk_declared
from rths_nodes.core.version import __version__
from rths_nodes.loop.scenario.schema import Scenario


def information(
    scenario: Scenario, run_id: str, host: str, pace: str, faults: Iterable[str] = (), actuator_nodes: str = ""
) -> dict[str, str]:
    """The scenario, what the run was called, where and with which version it began now.

    ``actuator_nodes`` is empty on the host embedded, which has no nodes.
    """
    layout = {"actuator_nodes": actuator_nodes} if actuator_nodes else {}
    injected = " ".join(faults)
    return {
        "scenario": yaml_text.dump(scenario.data()),
        "scenario_hash": scenario.shared_hash(run_id),
        "run_id": run_id,
        "host": host,
        "pace": pace,
        **layout,
        "version": __version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **({"faults": injected} if injected else {}),
    }


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
        ours = code.hashes(code.package_files())
        names, files = {PACKAGE: code.version(), f"{PACKAGE}, files": code.combined(ours)}, dict(ours)
        for module in sorted(_foreign_modules(scenario)):
            theirs = code.hashes(code.files_of(module))
            names[module], files = code.combined(theirs), files | theirs
        for place, part in walk(scenario):
            with suppress(ConfigError):  # is refused when it is built
                if read := code.hashes(reads_of(part)):
                    names[place], files = code.combined(read), files | read
        return cls(names, files).behind(build)

    def behind(self, build: str) -> Code:
        """The same with the ``build`` of the receiver."""
        return replace(self, names={**self.names, "receiver": build}, build=build) if build else self

    @cached_property
    def hash(self) -> str:
        """All of it, wherever it is installed."""
        return code.summary(self.names)

    def changed(self, build: str) -> list[str]:
        """What of it is another now, in words; ``build`` is that of the receiver now."""
        now = code.hashes(self.files)
        found = [path for path, known in self.files.items() if now[path] != known]
        if build != self.build:
            found.append(f"the receiver reports the build {build or 'none'}, no more {self.build or 'none'}")
        return found


def _foreign_modules(scenario: Scenario) -> set[str]:
    """Modules of other packages in which a component of the scenario stands."""
    found = set()
    for _, part, declared in walk_declared(scenario):
        if declared and declared[-1].family:
            with suppress(ConfigError):  # one of a recording that is not installed here
                found.add(registry.class_of(declared[-1].family, part).__module__)
    return {module for module in found if code.package_of(module) != PACKAGE}
