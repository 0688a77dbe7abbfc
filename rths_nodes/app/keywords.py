# SPDX-License-Identifier: Apache-2.0
"""Keyword arguments of the Python functions, with the defaults and descriptions of options and sections."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypedDict, TypeVar

from rths_nodes.core.data import Data
from rths_nodes.core.kernels import Function, Kernel
from rths_nodes.core.parameters import Spec, declared
from rths_nodes.loop.options import PYTHON, options
from rths_nodes.loop.scenario.files import Overrides, Source, listed
from rths_nodes.loop.scenario.schema import Scenario

F = TypeVar("F", bound=Function)
Place: TypeAlias = str | os.PathLike[str]
Section: TypeAlias = Mapping[str, object] | type | Function | Kernel | None
"""Section as data or, for a component, a class, a kernel or the step function of a kernel."""
INDENT = " " * 4
UNCHANGED = ...
"""Default of an argument that leaves the scenario's section unchanged."""


class Sections(TypedDict, total=False):
    name: str
    description: str
    servo_rate: float
    substeps: int
    duration: float
    time_ratio: float
    soft_start: Section
    seed: int
    ground_motion: Section
    structure: Section
    reduction: Section
    integrator: Section
    ramp: Section
    interface: Sequence[str]
    observed: Sequence[str]
    setup: Section
    compensator: Section
    port: Section
    hops: Section
    axes: Section
    semi_active: Section
    updating: Section
    bridge: Section
    levels: Section
    heartbeat: Section
    force_lead: float | None
    indices: str
    monitor: Section
    recording: Section
    scatter: Mapping[str, object]


class OfRun(Sections, total=False):
    rig: Place
    case: str
    host: str
    engine: str
    pace: str
    actuator_nodes: str
    separate: Sequence[str]
    namespace: str
    record: Place
    run_id: str
    reliability: str
    transport: str
    faults: Sequence[str]
    clock: bool
    peer_timeout: float


class OfStudy(TypedDict, total=False):
    scenario: Source
    factors: Mapping[str, object]
    plants: int
    nominal: bool
    seed: int
    set: Mapping[str, object]
    case: str
    indices: Sequence[str]
    name: str
    description: str


def split(keywords: Mapping[str, object], overrides: Overrides) -> tuple[Overrides, Data]:
    sections = {name: value for name, value in keywords.items() if name in Sections.__annotations__}
    options_left = {name: value for name, value in keywords.items() if name not in sections}
    return [*listed(overrides), *([sections] if sections else [])], options_left


def _of_run() -> dict[str, tuple[Spec, object]]:
    sections = declared(Scenario)
    rows: dict[str, tuple[Spec, object]] = {
        name: (option.spec, option.default) for name, option in options(PYTHON).items()
    }
    return rows | {name: (sections[name], UNCHANGED) for name in Sections.__annotations__}


def declared_by(keywords: type, rows: Mapping[str, tuple[Spec, object]] | None = None) -> Callable[[F], F]:
    """Return a decorator that replaces ``**keywords`` in signature and docstring with the single keywords.

    ``rows`` maps each keyword to its description and default; None: the keywords of a run.
    """
    described = _of_run() if rows is None else rows
    types = {name: kind.__forward_arg__ for name, kind in keywords.__annotations__.items()}

    def decorated(function: F) -> F:
        signature = inspect.signature(function)
        fixed = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
        further = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=described[name][1], annotation=kind)
            for name, kind in types.items()
        ]
        vars(function)["__signature__"] = signature.replace(parameters=[*fixed, *further])
        lines = ["Other Parameters", "----------------"]
        for name in types:
            spec, default = described[name]
            unit = f", {spec.unit}" if spec.unit not in ("", "1") else ""
            shown = "" if default is UNCHANGED else f", default {default!r}"
            lines.append(f"{name} : {spec.kind}{unit}{shown}")
            sentence = f"{spec.doc[:1].upper()}{spec.doc[1:]}."
            lines += textwrap.wrap(sentence, 100, initial_indent=INDENT, subsequent_indent=INDENT)
        head, mark, tail = inspect.cleandoc(function.__doc__ or "").partition("Returns\n-------")
        function.__doc__ = "\n".join([head.rstrip(), "", *lines, "", mark + tail])
        return function

    return decorated
