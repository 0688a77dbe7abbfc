# SPDX-License-Identifier: Apache-2.0
"""Answers file of an operator. The terminal asks for missing answers.

operator: A. Tester
rungs: [a, b, c, d, e, f, g]
level: 0.2
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from rths_nodes.core.data import Data
from rths_nodes.core.errors import ConfigError, Problems, show, unknown, within
from rths_nodes.core.parameters import declared, flag, integer, mapping, number, params, section, text, texts
from rths_nodes.core.validation import from_data
from rths_nodes.core.yaml_text import parse, source_of
from rths_nodes.loop.procedure_record import FULL, REDUCED, RUNGS
from rths_nodes.procedure.session import CLEAR

ALL = tuple(RUNGS)
MOVED = tuple(name for name in RUNGS if RUNGS[name].moves)
HEAD = ("operator", "specimen", "level", "time_ratio")
"""Keys that are not arguments of an act."""
LONGEST_ID = 120
_NAME = re.compile(rf"\w[\w .-]{{0,{LONGEST_ID - 1}}}")
REMOVED = (
    "has been removed. Write the next run of a series with rths iterate --next FOLDER, and start it in rung g"
)
"""End of the message that refuses rung h and the key ``iteration``. Both existed in version 0.9.0."""

MOVING = ("check", "position", "run", "unload")
YES, NO = "y", "n"
TYPE_CLEAR = f"type {CLEAR} to start this motion; anything else moves nothing: "


@params
class Motion:
    """Answer to the question whether an act may move the rig."""

    moves: str = text(
        "y: this act may move the simulated or emulated rig; n: this act is not performed", choices=(YES, NO)
    )


@params
class Answers:
    """Operator's answers to the questions before and during a test. None or an empty value is a missing answer."""

    version: int = integer("version of this file format", default=1, at_least=1, at_most=1)
    test_id: str | None = text("name of the test and of its folder; default: scenario and time", None)
    operator: str | None = text("name of the person who conducts the test and is responsible for it", None)
    second: str | None = text(
        "name of the second person, who arms rung g with the operator if two_persons is true in the rig file", None
    )
    specimen: str | None = text("name of the specimen", None)
    rungs: tuple[str, ...] = texts("rungs to climb, in the order of the ladder; default: a to g", ALL)
    level: float | None = number(
        "level of the rungs d, e and f, by which the excitation is multiplied",
        "",
        None,
        more_than=0.0,
        at_most=1.0,
    )
    time_ratio: int | None = integer(
        "factor by which the rig moves more slowly than the structure in rung e",
        "",
        None,
        at_least=2,
        at_most=1000,
    )
    offsets_seconds: float | None = number(
        "duration of the offset measurement", "s", None, at_least=0.1, at_most=600.0
    )
    confirm_offsets: bool | None = flag("true: confirm the measured offsets without asking the operator", None)
    unloaded: bool | None = flag(
        "true: the specimen carries no load while the offsets are taken, so that the forces are tared", None
    )
    sign_for: tuple[str, ...] = texts(
        "full names of items that the operator signs for because the small move cannot verify them, such as "
        "'scale of force of story_1' or 'force at rest of story_1'; the name of an axis selects all its scales"
    )
    checklist: Data = mapping(
        "answer (y or n) to each item of the rig file's checklist; a real rig needs the answers of a person"
    )
    check: Motion | None = section(Motion, "permission for the small move of every axis, {moves: y}", None)
    position: Motion | None = section(
        Motion, "permission for the motion to the start of each rung, {moves: y}", None
    )
    arm: tuple[str, ...] = texts("rungs that move the rig and are armed without a question", ALL)
    run: Motion | None = section(Motion, "permission to run each armed rung, {moves: y}", None)
    largest_difference: Data = mapping(
        "largest permitted relative rms difference of each rung, or .inf. A rung that moves the rig is "
        "compared with its rehearsal, every other rung with the previous rung"
    )
    unload: Motion | None = section(
        Motion,
        "{moves: y}: unload the specimen to zero force at the end; {moves: n}: leave the specimen loaded",
        None,
    )
    notes: tuple[str, ...] = texts("notes of the operator for the report")

    def moves(self, act: str) -> bool | None:
        answer: Motion | None = getattr(self, act) if act in MOVING else None
        return None if answer is None else answer.moves == YES

    def validate(self, path: str) -> None:
        problems = Problems()
        if self.test_id is not None and not _NAME.fullmatch(self.test_id):
            problems.append(
                f"test_id = {show(self.test_id)}: must be the name of a folder: at most {LONGEST_ID} letters, "
                "digits, spaces or characters _ . -, beginning with a letter, digit or _"
            )
        for key in ("operator", "second", "specimen"):
            if (answer := getattr(self, key)) is not None and not answer.strip():
                problems.append(f"{key} = {show(answer)}: must not be empty")
        for key in ("rungs", "arm"):
            rungs = getattr(self, key)
            if rungs != tuple(name for name in RUNGS if name in rungs):
                problems.append(
                    f"{key} = {show(list(rungs))}: must contain each rung at most once, in the order "
                    f"{', '.join(RUNGS)}"
                )
        if extra := [name for name in self.arm if name not in MOVED]:
            problems.append(f"arm = {', '.join(extra)}: must be rungs that move the rig ({', '.join(MOVED)})")
        problems += [
            f"checklist.{item} = {show(answer)}: must be {YES} or {NO}"
            for item, answer in self.checklist.items()
            if answer not in (YES, NO)
        ]
        for rung, value in self.largest_difference.items():
            key = f"largest_difference.{rung}"
            if rung not in RUNGS:
                problems += unknown(key, "rung", rung, RUNGS).problems
            elif isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0.0:
                problems.append(f"{key} = {show(value)}: must be a number >= 0 (relative rms difference) or .inf")
        problems.refuse()


def read(path: str | os.PathLike[str]) -> Answers:
    """Read an answers file. Raises ConfigError if the file cannot be read or an answer is invalid."""
    data = parse(source_of(path, f"answers {str(path)!r}"), str(path))
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path}: must contain a mapping of answers")
    with within(str(path)):
        problems = Problems(
            f"{key} = {show(data[key])}: must be {{moves: y}} or {{moves: n}}, because this act moves the rig"
            for key in MOVING
            if isinstance(data.get(key), (bool, str))
        )
        for key in ("rungs", "arm"):
            if isinstance(rungs := data.get(key), list) and "h" in rungs:
                problems.append(f"{key}: rung h {REMOVED}")
        if "iteration" in data:
            problems.append(f"iteration: {REMOVED}")
        problems.refuse()
        answers = {key: value for key, value in data.items() if value is not None or key not in declared(Answers)}
        if isinstance(limits := answers.get("largest_difference"), Mapping):
            answers["largest_difference"] = {key: value for key, value in limits.items() if value is not None}
        return from_data(Answers, answers)


def needed(planned: Iterable[str]) -> list[str]:
    rungs = [RUNGS[name] for name in planned]
    keys = ["operator", "specimen"]
    keys += ["level"] * any(rung.name in REDUCED for rung in rungs)
    keys += ["time_ratio"] * any(rung.name == "e" for rung in rungs)
    if any(rung.on_rig for rung in rungs):
        keys += ["offsets_seconds", "confirm_offsets", "unloaded", "check", "position"]
    if any(rung.moves for rung in rungs):
        keys += ["arm", "run", "unload"]
    return keys + ["largest_difference"] * (len(rungs) > 1)


def missing(answers: Answers, only: Iterable[str] | None = None) -> list[str]:
    """Return a message for each missing answer of the planned rungs. ``only`` selects keys (None: all)."""
    planned, specs, problems = answers.rungs or ALL, declared(Answers), []
    by_rung = {"arm": [name for name in planned if name in MOVED], "largest_difference": planned[1:]}
    keys = needed(planned)
    for key in keys if only is None else [key for key in keys if key in only]:
        value, spec = getattr(answers, key), specs[key]
        left = [name for name in by_rung.get(key, ()) if not value or name not in value]
        if value is None or value in ((), {}):
            problems.append(f"{key}: must be answered ({spec.doc}{f', {spec.unit}' if spec.unit else ''})")
        elif key == "arm" and left:
            problems.append(f"arm: must list every planned rung that moves the rig, but lacks {', '.join(left)}")
        else:
            problems += [f"{key}.{name}: must be answered ({spec.doc})" for name in left]
    return problems


def template(rungs: Sequence[str] = ALL) -> str:
    lines = ["# Answers of the operator for rths test SCENARIO --rig RIG --answers FILE", "version: 1"]
    keys = {"test_id", "rungs", "sign_for", "notes", *needed(rungs), *["second"] * (FULL in rungs)}
    for name, spec in declared(Answers).items():
        if name not in keys:
            continue
        if name == "rungs":
            lines += [f"#   {rung.name}: {rung.words}" for rung in RUNGS.values() if rung.name in rungs]
        bound = f"; {spec.bound}" if spec.bound and not spec.choices else ""
        comment = f"# {spec.doc}{f' [{spec.unit}]' if spec.unit else ''}{bound}"
        if name == "largest_difference":
            lines += [f"{name + ':':<31} {comment}", *(f"  {rung}:" for rung in rungs[1:])]
        else:
            example = f"[{', '.join(rungs)}]" if name == "rungs" else ""
            lines.append(f"{f'{name}: {example}'.rstrip():<31} {comment}")
    return "\n".join(lines) + "\n"
