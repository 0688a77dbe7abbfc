# SPDX-License-Identifier: Apache-2.0
"""``rths check``: check a scenario (without running it), a component, or another file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache, partial
from itertools import chain
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from rths_nodes.analysis.cautions import judged_margin, of_margin
from rths_nodes.analysis.share_of_structure import partition
from rths_nodes.app.commands import arguments, component_check, exchange, terminal
from rths_nodes.app.procedure import answers
from rths_nodes.app.studies import study
from rths_nodes.core import registry, yaml_text
from rths_nodes.core.errors import ComponentError, ConfigError, IntegratorError, counted, quoted, within
from rths_nodes.core.limits import Limits, braked_together, braking_way, changes_of_step, samples_to_rest, way_left
from rths_nodes.core.parameters import declared, required_names, type_of
from rths_nodes.core.samples import Array, Command
from rths_nodes.core.text_files import LARGEST_TEXT, encoding_of, read_bytes, read_head, reason
from rths_nodes.core.validation import to_data
from rths_nodes.laboratory.calibration import Channel
from rths_nodes.laboratory.corrections import corrections_in_words
from rths_nodes.laboratory.ports.wrappers import PortBefore
from rths_nodes.loop.commissioning import Commissioning
from rths_nodes.loop.embedded import Outcome, checked_loop
from rths_nodes.loop.executive.running import live_parts
from rths_nodes.loop.options import NAMESPACE, REALTIME
from rths_nodes.loop.pacing import ANSWERED
from rths_nodes.loop.procedure_record import FULL, ProcedureRecord
from rths_nodes.loop.scenario import files, judgement
from rths_nodes.loop.scenario.assembly import Assembly, Names
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.rehearsal import simulated
from rths_nodes.loop.scenario.rig_file import RigFile
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.scenario.updating import Copies, learning_notes
from rths_nodes.loop.stages.command import PATIENCE
from rths_nodes.loop.supervision.safe_stop import braking_time, excess_travel
from rths_nodes.loop.supervision.states import State
from rths_nodes.mechanics import loading_model
from rths_nodes.numerical.ground_motions import readers
from rths_nodes.numerical.ground_motions.record import LARGEST_RECORD, Record
from rths_nodes.numerical.reductions import FREQUENCIES, Reduced, differences
from rths_nodes.recording import commissioning, plain, procedure, signatures
from rths_nodes.recording.bag import MESSAGE_RECORD
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import MAGIC
from rths_nodes.recording.run import Run
from rths_nodes.recording.signatures import Signatures
from rths_nodes.recording.sink import RecordingSink

ADVISED = 0.6
"""Default fraction of an integration step that the ramp ``predictor_corrector`` predicts."""
SAMPLES = 1000
LISTED = 3
REHEARSED_S = 2.0
"""Computing time after which the simulated test ends early, s."""


def check_arguments(add: arguments.Arguments) -> None:
    add.scenario()
    text = "recording of a real-time test with the hops of the rig, from which the required hops.depth is computed"
    add("--hops RECORDING", text)


def check_command(options: arguments.Options) -> None:
    if component := component_check.component_of(options.scenario):
        arguments.refuse_idle(options, ("rig", "case", "hops"), "applies to a scenario, not to a component")
        for result in component_check.check(*component, options.set):
            terminal.say(result)
        return
    if other := described_file(options.scenario):
        description, command = other
        why = f"applies to a scenario, not to a {description}"
        arguments.refuse_idle(options, ("rig", "set", "case", "hops"), why)
        terminal.say(f"{options.scenario}: {description}")
        terminal.say(f"  used by: {command}")
        return
    loaded = arguments.scenario(options)
    measured = None
    if options.hops:
        with within(f"--hops {options.hops}"):
            measured = round_trips(read_run(options.hops))
    port = NeverOpened(Assembly(loaded).port) if options.rig else None  # only rths test moves the rig
    assembly = checked_loop(loaded, port=port).assembly
    terminal.say(f"{loaded.name}: fits together")
    rehearsed = cache(partial(_rehearsed, loaded))
    hops = _hops(loaded, measured, rehearsed) if measured else ()
    for line in chain(_facts(loaded, assembly, options.rig, rehearsed), hops):
        terminal.say(f"  {line}")


def _facts(loaded: Scenario, assembly: Assembly, rig: str, rehearsed: Rehearsals) -> Iterator[str]:
    slower = f", {loaded.time_ratio:g} times slower" if loaded.time_ratio > 1 else ""
    per_step, dof = loaded.samples_per_step, len(assembly.names.model)
    yield (
        f"{loaded.steps} steps of {counted(per_step, 'sample')} at {loaded.servo_rate:g} Hz: "
        f"{loaded.samples} samples, {loaded.samples * loaded.dt:.6g} s{slower}"
    )
    yield f"{counted(dof, 'degree')} of freedom, axes: {', '.join(loaded.axes)}"
    if not assembly.observation.complete:
        observed = ", ".join(loaded.observed) or "none"
        yield f"interface: {', '.join(loaded.interface)}; also observed: {observed}"
    yield from _rig(loaded)
    yield from _reduction(assembly)
    yield from _structure(assembly)
    yield from (f"{path}: {line}" for path, part, _ in loaded.parts() for line in part.contents())
    if (structure := assembly.full_structure) is not None:
        largest = float(abs(assembly.ground_acceleration).max() * abs(structure.ground_load).max())
        yield f"largest external force: {largest / 1e3:.4g} kN"
    if loaded.soft_start:
        yield f"soft start: the first {loaded.soft_start_steps} steps, {loaded.soft_start.total:.4g} s"
    if loaded.cases:
        yield f"cases: {', '.join(loaded.cases)}"
    yield from _step_times(assembly)
    yield from _loads(loaded)
    yield from _excess_travel(loaded)
    rehearsal = rehearsed(loaded.hops.depth)
    yield from _margins(loaded, rehearsal)
    yield from _learning(loaded, rehearsal)
    if rehearsal is not None:
        size = rehearsal.size / 1e6
        yield f"recording: {size:.3g} MB of disk space during the test, up to {2.0 * size:.3g} MB during indexing"
    margin, reason = judged_margin(loaded)
    if loaded.structure is not None:
        yield f"stability: {margin or f'not assessed ({reason})'}"
    for caution in (*judgement.cautions(loaded, assembly.port.simulated), *of_margin(margin)):
        yield f"caution: {caution}"
    yield from _commissioned(loaded, rig)
    live = live_parts(assembly)
    can = "available for this test on the hosts embedded and composed"
    yield f"engine executive: {live if isinstance(live, str) else can}"


def _learning(loaded: Scenario, rehearsal: Rehearsal | None) -> Iterator[str]:
    if loaded.updating is None:
        return

    from rths_nodes.analysis.stability.judgement import refuse_unstable

    copies = Copies(loaded)
    yield (
        f"updating: the model of {', '.join(copies.laws)} learns from axis {loaded.updating.axis} "
        f"({loaded.updating.mode}), one sample every {1e3 * copies.settings.period:.3g} ms"
    )
    refuse_unstable(loaded)
    if rehearsal is not None:
        where = f"in a simulated run of {rehearsal.samples * loaded.dt:.3g} s"
        for note in learning_notes(rehearsal.integrator, loaded):
            yield f"{where}: {note}"


class NeverOpened(PortBefore):
    """Port of a scenario that is only checked. It refuses to open, because it may belong to a real rig."""

    armed = True

    def open(self, pacer: object = None) -> None:
        raise RuntimeError("the port of a check is never opened")


def _commissioned(loaded: Scenario, rig: str) -> Iterator[str]:
    result, barred = commissioning.in_effect(loaded, rig)
    if barred:
        yield f"caution: {barred}"
    elif result is not None:
        persons = f"{result.operator} and {result.second_person}"
        yield f"commissioned on {result.date} by {persons}, valid until {result.valid_until}: {result.counts}"


def _rig(loaded: Scenario) -> Iterator[str]:
    if loaded.rig_file is None:
        return
    yield f"rig: {loaded.rig_file.name}, port {type(loaded.port).type_name}"
    if loaded.rig_file.two_persons:
        yield f"two_persons: rung {FULL} requires the names of the operator and of a second person"
    for name, axis in loaded.axes.items():
        mine: Any = axis.rig_axis
        facts = [_channel(noun, getattr(mine, noun)) for noun in ("displacement", "force", "command")]
        scale = mine.similitude
        if (scale.length, scale.force) != (1.0, 1.0):
            facts.append(f"ratio of structure to specimen: {scale.length:g} (length), {scale.force:g} (force)")
        facts += corrections_in_words(mine, simulated=loaded.port.builds_axes)
        yield f"axes.{name}: axis {mine.name} of the rig file; {'; '.join(facts)}"
    for name, channel in loaded.rig_file.auxiliary.items():
        yield _channel(name, channel)


def _channel(noun: str, channel: Channel) -> str:
    scale = f"{channel.sign * channel.scale:g} {channel.unit} per unit of the signal"
    text = f"{noun} +- {channel.range:g} {channel.unit}, {scale}"
    return f"{text}, calibrated {channel.calibrated}" if channel.calibrated else text


def _reduction(assembly: Assembly) -> Iterator[str]:
    model: Any = assembly.structure
    scenario = assembly.scenario
    if not isinstance(model, Reduced):
        return
    places = [model.full.names.index(name) for name in scenario.interface]
    frequency, static, compliance = differences(model, places, scenario.reduction.band)
    yield (
        f"reduction {type(scenario.reduction).type_name}: {len(model.full.names)} -> {len(model.names)} degrees "
        f"of freedom. Errors relative to the full model: {100 * frequency:.2g} % ({FREQUENCIES} lowest natural "
        f"frequencies), {100 * static:.2g} % (static compliance of the interface) and {100 * compliance:.2g} % of "
        f"the maximum (compliance up to {scenario.reduction.band:g} Hz)"
    )


def _step_times(assembly: Assembly) -> Iterator[str]:
    try:
        took = assembly.integrator.rehearsed()
        of_compensator = assembly.compensator.rehearsed()
    except IntegratorError as error:
        raise ConfigError(f"integrator: {error}") from error
    except ComponentError as error:
        raise ConfigError(str(error)) from error
    if len(took):
        yield from judged(assembly.scenario, assembly.ramp.predicted, took)
    if len(of_compensator):
        sample = _ms(assembly.scenario.dt)
        yield f"compensator: computing time per sample (period {sample}): {quantiles(of_compensator)}"


def _loads(loaded: Scenario) -> Iterator[str]:
    for name in loaded.force_axes:
        axis: Any = loaded.axes[name]
        load, control = axis.own_load, axis.force_control
        yield (
            f"axes.{name}: the position is held for {load.held_for:g} s, then the force is controlled up to "
            f"{abs(load.largest) * 1e-3:g} kN{', vertical' * load.vertical} ({type(control.law).type_name} in the "
            f"{control.closed_by}). The position is held again if a correction of "
            f"{1e3 * control.largest_correction:g} mm does not reach the force"
        )


def _groups(loaded: Scenario) -> Iterator[tuple[dict[str, Limits], float]]:
    """Yield the limits by axis and the braking time (s) of each group of displacement axes that stop together."""
    names = list(loaded.limits)
    for group in braked_together(loaded.limits.values(), loaded.stop_groups):
        members = {names[axis]: loaded.limits[names[axis]] for axis in group}
        if not any(limits.of_force for limits in members.values()):  # a force axis stops alone
            yield members, braking_time(members.values())


def _excess_travel(loaded: Scenario) -> Iterator[str]:
    transport = loaded.port.transport_samples * loaded.dt
    bridge, on_the_way = loaded.bridge.max_bridge, f", {1e3 * transport:.3g} ms in transport" if transport else ""
    paused = "; in a pause the command moves further, but within its stroke" * loaded.bridge.pauses
    for members, time in _groups(loaded):
        for name, limits in members.items():
            travel = excess_travel(limits, bridge + transport, time)
            yield (
                f"axes.{name}: after a failure the command moves at most {1e3 * travel:.3g} mm further "
                f"({1e3 * bridge:g} ms bridged{on_the_way} at {limits.velocity:g} m/s, then braking at "
                f"{limits.velocity / time:.4g} m/s^2); the actuator moves further by its own lag{paused}"
            )
        if len(members) > 1:
            yield f"axes {' and '.join(members)} stop together, in at most {time:.3g} s"


def _hops(loaded: Scenario, trips: tuple[float, float], rehearsed: Rehearsals) -> Iterator[str]:
    p999, longest = trips
    depth = needed_depth(p999, loaded.dt)
    yield (
        f"hops: 99.9 % of the Commands arrive within {1e3 * p999:.4g} ms of the Measurement, and all within "
        f"{1e3 * longest:.4g} ms. This requires hops.depth = {depth}; the scenario has {loaded.hops.depth}"
    )
    for tried in sorted({0, loaded.hops.depth, depth}):
        try:
            test = rehearsed(tried)
        except ConfigError as error:
            yield f"hops.depth = {tried}: not possible ({error})"
            continue
        if test is not None:
            yield f"hops.depth = {tried}: {test.summary(loaded.dt)}"


def _margins(loaded: Scenario, rehearsal: Rehearsal | None) -> Iterator[str]:
    names = list(loaded.limits)
    for members, time in _groups(loaded):
        for name, limits in members.items():
            way = 0.5 * limits.velocity * time
            text = (
                f"axes.{name}: usable stroke {1e3 * (limits.stroke - way):.4g} mm ({1e3 * limits.stroke:.4g} mm "
                f"minus {1e3 * way:.3g} mm to brake from {limits.velocity:g} m/s)"
            )
            if rehearsal is not None and rehearsal.samples > 1:
                text += (
                    f"; smallest margin in a simulated run of {rehearsal.samples * loaded.dt:.3g} s: "
                    f"{1e3 * rehearsal.smallest[names.index(name)]:.4g} mm"
                )
            yield text
    if rehearsal is not None and rehearsal.reason:
        yield f"caution: {rehearsal.summary(loaded.dt)}"


def _rehearsed(loaded: Scenario, depth: int) -> Rehearsal | None:
    test = loaded if depth == loaded.hops.depth else override(loaded, [f"hops.depth={depth}"])
    try:
        loop = checked_loop(simulated(test))
    except ConfigError:
        return None
    if any(part.external for part in (loop.assembly.integrator, loop.assembly.compensator, loop.rig.port)):
        return None
    until = monotonic() + REHEARSED_S
    rehearsal = Rehearsal(loop.assembly.scenario, loop.assembly.names)
    rehearsal.ended(loop.run([rehearsal], interrupted=lambda: monotonic() > until), loaded.samples)
    return rehearsal


def _structure(assembly: Assembly) -> Iterator[str]:
    yield f"excitation: {', '.join(_excitation(assembly))}"
    if assembly.scenario.structure is None:
        elsewhere = registry.class_of("integrator", assembly.scenario.integrator).external
        where = "computed in another process" if elsewhere else "none, because the displacements are prescribed"
        yield f"structure: {where}"
        return
    expected = {
        name: axis.rig_axis.stiffness
        for name, axis in assembly.scenario.axes.items()
        if axis.rig_axis is not None and axis.rig_axis.stiffness is not None
    }
    try:
        parts = partition(assembly, expected)
    except ConfigError as error:
        yield f"periods and stiffness: not available ({error})"
        return
    if len(parts.frequencies):
        periods = [f"{1.0 / f:.4g}" if f > 0.0 else "infinite" for f in parts.frequencies[:LISTED].tolist()]
        count = len(parts.frequencies)
        more = f" s (the longest {LISTED} of {count} periods)" if count > LISTED else " s"
        yield f"natural periods of the entire structure: {', '.join(periods)}{more}"
    else:
        yield "natural periods: unknown, because the stiffness of the specimens is not declared"
    source = parts.source or "unknown, because neither the structure nor a specimen model declares a stiffness"
    tested = f"{_diagonal(parts.experimental[2])} N/m, " if parts.source else ""
    yield f"stiffness: numerical {_diagonal(parts.numerical[2])} N/m; experimental {tested}{source}"


def _diagonal(matrix: Array) -> str:
    values = np.diag(np.asarray(matrix)).tolist()
    if len(values) <= LISTED:
        return ", ".join(f"{value:.4g}" for value in values)
    return f"{min(values):.4g} to {max(values):.4g} ({len(values)} diagonal elements)"


def _excitation(assembly: Assembly) -> Iterator[str]:
    scenario = assembly.scenario
    shaken = scenario.structure is not None or scenario.integrator.ground is not None
    prescribed = not shaken
    params: object = scenario.ground_motion if shaken else scenario.integrator.displacement
    if params is None:
        file = scenario.integrator.history
        yield Path(file).name if file else "defined by the client of the integrator"
        return
    data = to_data(params)
    yield data.get("record") or (Path(str(data["file"])).name if data.get("file") else str(data["type"]))
    motion = registry.build("ground_motion", params, scenario.seed)
    times = scenario.step * np.arange(scenario.steps - scenario.soft_start_steps + 1)
    peak = float(np.abs(motion.sample(times) if prescribed else assembly.ground_acceleration).max())
    yield f"peak {1e3 * peak:.4g} mm" if prescribed else f"peak {peak:.4g} m/s^2"
    record_length = (
        f" of a record of {motion.step * (len(motion.values) - 1):.4g} s" if isinstance(motion, Record) else ""
    )
    yield f"{scenario.duration:g} s{record_length}"


def needed_depth(p999: float, dt: float) -> int:
    """Return the ``hops.depth`` with which 99.9 % of the Commands arrive in time.

    ``p999`` is the 99.9 % quantile of the round trip (s), ``dt`` the sample period (s).
    """
    return max(0, math.ceil(p999 / dt - ANSWERED))


def round_trips(run: Run) -> tuple[float, float]:
    """Return the 99.9 % quantile and the maximum of the delay from a Measurement to its Command, s.

    Raises ConfigError if the test was too short or ran in lockstep.
    """
    pace = run.information.get("pace", "")
    if pace != REALTIME:
        raise ConfigError(f"pace = {pace!r}: must be {REALTIME}, because lockstep waits for every hop")
    if len(run.time) < SAMPLES or "loop" not in run.timing:
        raise ConfigError(f"{len(run.time)} samples: must be >= {SAMPLES} for a 99.9 % quantile")
    return run.timing["loop"]["p999_s"], run.timing["loop"]["max_s"]


def judged(scenario: Scenario, predicted: int, took: Array) -> Iterator[str]:
    """Yield lines that compare the durations ``took`` (s) of integration steps with the available time.

    ``predicted`` is the number of predicted samples at the start of each step.
    """
    count, bridge, step = len(took), scenario.bridge, scenario.samples_per_step * scenario.dt
    yield f"a step takes {quantiles(took)}"
    in_time = (predicted + PATIENCE) * scenario.dt
    late, lost = (int(np.count_nonzero(took > limit)) for limit in (in_time, in_time + bridge.max_bridge))
    share, ramp = predicted / scenario.samples_per_step, "this ramp"
    if not share:
        share, ramp = ADVISED, "ramp.type = predictor_corrector"
    good = math.ceil(float(took.max()) / share / scenario.dt) * scenario.dt
    yield f"step time allowed in real time: {_ms(in_time)} of {_ms(step)}; {late} of {count} steps took longer"
    yield f"all steps would be in time with {ramp} and steps of {_ms(good)} or more"
    if lost:
        then = "pauses" if bridge.pauses else "trips (with bridge.when_late = pause, the rig slows down)"
        limit = _ms(bridge.max_bridge)
        excess = f"{lost} of {count} steps exceeded the available time by more than bridge.max_bridge = {limit}"
        yield f"caution: {excess}; the rig then {then}"


def quantiles(took: Array) -> str:
    median, rare, longest = (_ms(value) for value in (np.median(took), np.percentile(took, 99.0), took.max()))
    return f"{median} (median), {rare} (99 %), {longest} (longest of {len(took)}), while no test runs"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


class Rehearsal(RecordingSink):
    """Evaluates a simulated test without recording it.

    ``smallest`` is the smallest stroke left after braking (m), by axis. ``size`` is the expected size of the
    journal of the complete test, bytes.
    """

    def __init__(self, scenario: Scenario, names: Names) -> None:
        self._bytes, limits = 0, scenario.limits
        text = dict.fromkeys(("run_id", "scenario_hash", "scenario", "version"), "")
        super().__init__(self._count, lambda ending: None, scenario, names, NAMESPACE, text)
        self._strokes = [limit.stroke for limit in limits.values()]
        self._changes = changes_of_step(limits.values(), scenario.dt)
        forced = [limit.of_force for limit in limits.values()]
        together = braked_together(limits.values(), scenario.stop_groups)
        self._groups = [group for group in together if not forced[group[0]]]
        self.smallest = [float("inf")] * len(limits)
        self.samples = 0
        self._before: list[float] = []

    def _count(self, topic: str, data: bytes, stamp_ns: int) -> None:
        self._bytes += MESSAGE_RECORD.size + len(data)

    def command(self, command: Command) -> None:
        super().command(command)
        now, before = command.command.tolist(), self._before
        self._before, self.samples = now, command.sample
        for group in self._groups if before else ():
            steps = [now[axis] - before[axis] for axis in group]
            samples = samples_to_rest(steps, [self._changes[axis] for axis in group])
            for axis, step in zip(group, steps, strict=True):
                left = way_left(now[axis], step, self._strokes[axis]) - braking_way(step, samples)
                self.smallest[axis] = min(self.smallest[axis], left)

    def ended(self, outcome: Outcome, samples: int) -> None:
        """Store the results of the simulated test. ``samples`` is the number of samples of the complete test."""
        self.reason = outcome.reason if outcome.state is State.TRIPPED else ""
        self.integrator, self._axes = outcome.integrator, outcome.metrics["axes"]
        self.size = self._bytes / max(1, outcome.samples) * samples

    def summary(self, dt: float) -> str:
        if self.reason:
            return f"the simulated test trips: {self.reason}"
        norms = ", ".join(f"{axis} {row['error_norm_percent']:.3g} %" for axis, row in self._axes.items())
        return f"error norm in a simulated run of {self.samples * dt:.3g} s: {norms}"


Rehearsals = Callable[[int], Rehearsal | None]
"""Function that takes ``hops.depth`` and returns the simulated test, or None if no simulation is possible."""


# Other files

SCENARIO, YAML = "scenario", (".yaml", ".yml")


class Kind(NamedTuple):
    name: str
    keys: frozenset[str]
    required: frozenset[str]
    describe: Callable[[Path], str]
    command: str

    def score(self, keys: set[str]) -> int:
        return len(keys & self.keys) - len(keys - self.keys) - len(self.required - keys)


def described_file(text: str) -> tuple[str, str] | None:
    """Return a description of the file or folder at the path ``text``, and a command that uses it.

    Return None if the path does not exist, is a scenario, or is a YAML file without keys. Raises ConfigError if
    the file is invalid or of an unknown kind.
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
        return f"settings of compensators: {laws}", f"rths scoreboard SCENARIO --settings {quoted(path)}"
    kind = max(_kinds(), key=lambda kind: kind.score(keys))
    if kind.score(keys) <= 0:
        raise _unknown(path, f"has the keys {', '.join(sorted(keys))}")
    return (
        None
        if kind.name == SCENARIO
        else (f"{kind.name}: {kind.describe(path)}", kind.command.format(quoted(path)))
    )


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
        return f"folder of a test: {_record(path / procedure.FILE)}", f"rths report {quoted(path)}"
    return _recording(path)


def _recording(path: Path) -> tuple[str, str]:
    run = read_run(path)
    notes = "".join(f"; {note}" for note in run.notes)
    summary = f"{run.scenario.name}, {len(run.time)} samples, {run.ending}{notes}"
    return f"recording: {summary}", f"rths report {quoted(path)}"


def _ground_motion(content: bytes, path: Path) -> tuple[str, str]:
    try:
        series = readers.read(content)
    except readers.FormatError as error:
        raise _unknown(path, str(error)) from None
    step = f"a step of {series.step:g} s" if series.step else "step unknown (set ground_motion.step)"
    unit = series.unit or "unit unknown (set ground_motion.unit)"
    summary = f"{len(series.values)} points, {step}, {unit}"
    return f"ground motion: {summary}", f"rths run SCENARIO --set ground_motion.file={quoted(path)}"


def _rig_file(path: Path) -> str:
    rig = files.load_rig(path)
    return f"{rig.name}, port {type_of(rig.port)}, axes {', '.join(rig.axes)}"


def _study(path: Path) -> str:
    plan = study.load(path)
    return f"{plan.name}, {plan.count} runs of {plan.base.name}"


def _columns(path: Path) -> str:
    return f"axes {', '.join(exchange.read_map(path).axes)}"


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
    from rths_nodes.app.studies import competition

    return f"laws {', '.join(competition.read_entry(path)['laws'])}"


def _signatures(path: Path) -> str:
    return counted(len(plain.read(Signatures, path, signatures.VERSION).signatures), "signed caution")


def _answers(path: Path) -> str:
    return f"rungs {' '.join(answers.read(path).rungs)}"


@cache
def _kinds() -> tuple[Kind, ...]:
    from rths_nodes.app.studies import competition  # slow: imports scipy

    def of_params(name: str, cls: type, describe: Callable[[Path], str], command: str, *more: str) -> Kind:
        required = frozenset((*required_names(cls), *more))
        return Kind(name, frozenset((*declared(cls), *more)), required, describe, command)

    def of_record(name: str, cls: type, describe: Callable[[Path], str], command: str) -> Kind:
        keys = {row.name: row.default is row.default_factory is MISSING for row in fields(cls)}
        required = frozenset(key for key, is_required in keys.items() if is_required)
        return Kind(name, frozenset({"version", *keys}), required, describe, command)

    return (
        of_params(SCENARIO, Scenario, str, "rths run {}"),
        of_params("rig file", RigFile, _rig_file, "rths check SCENARIO --rig {}"),
        of_params("study", study.StudyFile, _study, "rths study {}"),
        of_params("columns of a file", exchange.Columns, _columns, "rths import FILE {} --record DIR"),
        of_params("model of a rig", loading_model.Content, _model, "--set compensator.model={}", "axes"),
        of_params("answers of an operator", answers.Answers, _answers, "rths test SCENARIO --answers {}"),
        of_record("record of a test", ProcedureRecord, _record, "rths report FOLDER"),
        of_record(
            "commissioning", Commissioning, _commissioning, "commands that read the rig file in the same folder"
        ),
        of_record("signatures", Signatures, _signatures, "commands that read the rig file in the same folder"),
        Kind(
            "entry of a scoreboard",
            frozenset(competition.PARTS),
            frozenset(competition.PARTS),
            _entry,
            "rths scoreboard --verify {}",
        ),
    )
