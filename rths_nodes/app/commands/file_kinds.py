# SPDX-License-Identifier: Apache-2.0
"""Kinds of files that ``rths check`` recognises, reads completely and describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rths_nodes.app.commands import importing
from rths_nodes.app.procedure import answers
from rths_nodes.app.studies import design, entries
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.errors import ConfigError, counted
from rths_nodes.core.parameters import declared, required_names, type_of
from rths_nodes.core.text_files import LARGEST_TEXT, encoding_of, read_bytes, read_head, reason
from rths_nodes.loop.commissioning import Commissioning
from rths_nodes.loop.procedure_record import ProcedureRecord
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics import loading_model
from rths_nodes.numerical.ground_motions import readers
from rths_nodes.numerical.ground_motions.record import LARGEST_RECORD
from rths_nodes.recording import commissioning, plain, procedure, signatures
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import MAGIC
from rths_nodes.recording.signatures import Signatures

SCENARIO, YAML = "scenario", (".yaml", ".yml")


class Kind(NamedTuple):
    name: str
    keys: frozenset[str]
    required: frozenset[str]
    describe: Callable[[Path], str]
    command: str

    def score(self, keys: set[str]) -> int:
        return len(keys & self.keys) - len(keys - self.keys) - len(self.required - keys)


def described(text: str) -> tuple[str, str] | None:
    """Return a description of the file or folder ``text``, and a command that uses it.

    Return None if ``text`` does not exist, or is a scenario or a YAML file without keys. Raises ConfigError if the
    file is invalid or unknown.
    """
    path = Path(text)
    if text in files.shipped(files.RIG) and not path.exists():
        path = files.locate(text, files.RIG)
    if not path.exists():
        return None
    if path.is_dir():
        return _folder(path)
    try:
        is_recording = read_head(path, len(MAGIC)) == MAGIC
        text_limit = LARGEST_TEXT if path.suffix in YAML else LARGEST_RECORD
        content = b"" if is_recording else read_bytes(path, text_limit)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({reason(error)})") from None
    if is_recording:
        return _recording(path)
    keys = _keys(content, path)
    if not keys:
        return None if path.suffix in YAML else _ground_motion(content, path)
    if keys <= set(registry.names("compensator")):
        laws = ", ".join(files.load_settings(path))
        return f"settings of compensators: {laws}", f"rths scoreboard SCENARIO --settings {path}"
    kind = max(_kinds(), key=lambda kind: kind.score(keys))
    if kind.score(keys) <= 0:
        raise _unknown(path, f"has the keys {', '.join(sorted(keys))}")
    return None if kind.name == SCENARIO else (f"{kind.name}: {kind.describe(path)}", kind.command.format(path))


def _unknown(path: Path, problem: str) -> ConfigError:
    unlisted = "settings of compensators", "recording", "folder of a test", "ground motion"
    kinds = ", ".join((*(kind.name for kind in _kinds()), *unlisted))
    return ConfigError(f"{path}: unknown kind of file ({problem}); known kinds: {kinds}")


def _keys(content: bytes, path: Path) -> set[str]:
    try:
        data = yaml_text.parse(content.decode(encoding_of(content)), str(path))
    except ValueError as error:
        if path.suffix not in YAML:
            return set()
        raise (
            error if isinstance(error, ConfigError) else ConfigError(f"{path}: is not a text file ({error})")
        ) from None
    return set(data) if isinstance(data, Mapping) else set()


def _folder(path: Path) -> tuple[str, str]:
    if procedure.exists(path):
        return f"folder of a test: {_record(path / procedure.FILE)}", f"rths report {path}"
    return _recording(path)


def _recording(path: Path) -> tuple[str, str]:
    run = read_run(path)
    notes = "".join(f"; {note}" for note in run.notes)
    summary = f"{run.scenario.name}, {len(run.time)} samples, {run.ending}{notes}"
    return f"recording: {summary}", f"rths report {path}"


def _ground_motion(content: bytes, path: Path) -> tuple[str, str]:
    try:
        series = readers.read(content)
    except readers.FormatError as error:
        raise _unknown(path, str(error)) from None
    step = f"a step of {series.step:g} s" if series.step else "no step, so ground_motion.step is needed"
    unit = series.unit or "no unit, so ground_motion.unit is needed"
    summary = f"{len(series.values)} points, {step}, {unit}"
    return f"ground motion: {summary}", f"rths run SCENARIO --set ground_motion.file={path}"


def _rig(path: Path) -> str:
    rig = files.load_rig(path)
    return f"{rig.name}, port {type_of(rig.port)}, axes {', '.join(rig.axes)}"


def _study(path: Path) -> str:
    study = design.load(path)
    return f"{study.name}, {study.count} runs of {study.base.name}"


def _columns(path: Path) -> str:
    return f"axes {', '.join(importing.read_map(path).axes)}"


def _model(path: Path) -> str:
    model = loading_model.load(path)
    return f"axes {', '.join(model.axes)}, identified at {model.servo_rate:g} Hz"


def _record(path: Path) -> str:
    record = procedure.read(path.parent)
    return f"{record.test_id}, {len(record.rungs)} rungs, outcome {record.outcome}"


def _commissioning(path: Path) -> str:
    result = commissioning.read(path)
    return f"made on {result.date}, valid until {result.valid_until}: {result.counts}"


def _entry(path: Path) -> str:
    return f"laws {', '.join(entries.read(path)['laws'])}"


def _signatures(path: Path) -> str:
    return counted(len(plain.read(Signatures, path, signatures.VERSION).signatures), "signed caution")


def _answers(path: Path) -> str:
    return f"rungs {' '.join(answers.read(path).rungs)}"


@cache
def _kinds() -> tuple[Kind, ...]:
    def of_params(name: str, cls: type, describe: Callable[[Path], str], command: str, *more: str) -> Kind:
        required = frozenset((*required_names(cls), *more))
        return Kind(name, frozenset((*declared(cls), *more)), required, describe, command)

    def of_record(name: str, cls: type, describe: Callable[[Path], str], command: str) -> Kind:
        keys = {row.name: row.default is row.default_factory is MISSING for row in fields(cls)}
        required = frozenset(key for key, is_required in keys.items() if is_required)
        return Kind(name, frozenset({"version", *keys}), required, describe, command)

    return (
        of_params(SCENARIO, Scenario, str, "rths run {}"),
        of_params("rig file", RigFile, _rig, "rths check SCENARIO --rig {}"),
        of_params("study", design.StudyFile, _study, "rths study {}"),
        of_params("columns of a file", importing.Columns, _columns, "rths import FILE {} --record DIR"),
        of_params("model of a rig", loading_model.Content, _model, "--set compensator.model={}", "axes"),
        of_params("answers of an operator", answers.Answers, _answers, "rths test SCENARIO --answers {}"),
        of_record("record of a test", ProcedureRecord, _record, "rths report FOLDER"),
        of_record(
            "commissioning", Commissioning, _commissioning, "commands that read the rig file in the same folder"
        ),
        of_record("signatures", Signatures, _signatures, "commands that read the rig file in the same folder"),
        Kind(
            "entry of a scoreboard",
            frozenset(entries.PARTS),
            frozenset(entries.PARTS),
            _entry,
            "rths scoreboard --verify {}",
        ),
    )
