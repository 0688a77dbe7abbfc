# SPDX-License-Identifier: Apache-2.0
"""Commands that guide an operator through a procedure at a rig.

``rths test``: conduct a test, rung by rung, from the idle rig to the report.

``rths commission``: measure every stop and limit of a rig before a specimen is mounted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.page.process import page_beside
from rths_nodes.app.procedure import answers as answering
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.app.procedure.procedure_runner import Ladder, ProcedureRunner
from rths_nodes.app.streams import show_log
from rths_nodes.core.errors import ConfigError, Problems, printable, quoted, unknown
from rths_nodes.core.version import __version__
from rths_nodes.loop.commissioning import (
    FAILED,
    AxisHardware,
    Commissioning,
    CommissioningRow,
    rig_hash,
    same_person,
)
from rths_nodes.loop.interrupts import begun, raised_at_once
from rths_nodes.loop.options import NAMESPACE, PACES, REALTIME
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.procedure_record import FULL, RUNGS, ProcedureRecord, SpecimenRecord
from rths_nodes.loop.scenario import files, judgement, schema
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.schema import Scenario, rig_kind
from rths_nodes.procedure.commissioning.rig import Bench
from rths_nodes.procedure.commissioning.trials import commission, proofs, scenario_of
from rths_nodes.procedure.drive import warning_of
from rths_nodes.procedure.rungs import check_second, two_persons
from rths_nodes.procedure.session import CLEAR
from rths_nodes.recording import commissioning, plain, procedure, signatures
from rths_nodes.recording.plain import now
from rths_nodes.recording.reading import read_run
from rths_nodes.recording.records import RecordingError

if TYPE_CHECKING:
    from rich.console import Console as Screen

    from rths_nodes.app.procedure.console import Console

REPORT = "report.html"


def test_arguments(add: arguments.Arguments) -> None:
    add.scenario()
    text = (
        "YAML file with answers of the operator, so that the test proceeds automatically and asks only for "
        "missing answers; default: the operator types each act"
    )
    add("--answers FILE", text)
    add.flags(print_answers="print a template of the file for --answers, and exit")
    text = "pace of the rungs on the rig; default: realtime if the rig is real or watched, otherwise lockstep"
    add("--pace", text, choices=PACES)
    text = (
        "receive acts over the operator socket, from the page or other programs of this user, instead of from "
        "the terminal; --answers then supplies only operator, specimen, rungs, level and time ratio. Default "
        "namespace: "
    )
    add("--socket NAMESPACE", f"{text}{NAMESPACE}", nargs="?", const=NAMESPACE)
    text = "with --socket: also serve the page (as rths page), from which an operator can conduct the test"
    add.flags(page=text)
    add.page_port()
    add.flags(arm_from_page="with --page: allow the operator at the page to arm rungs that move the rig")
    add.removed(
        services="removed; use --socket, because acts are received over a socket of this user, not over ROS",
        key="removed; leave this option out, because acts over the operator socket are not signed",
        operator="removed; leave this option out, and run the program as the user who runs the test",
    )
    add("--record DIR", f"folder of the test; default: {terminal.RUNS}/<test id>")
    add.flags(no_report=f"do not write {REPORT} at the end")
    add.json()


def test_command(options: arguments.Options) -> int:
    if options.print_answers:
        print(answering.template(), end="")
        return 0
    if not options.rig:
        raise ConfigError("--rig: missing; a procedure requires a rig file with channels and limits")
    scenario = arguments.scenario(options)
    answers = answering.read(options.answers) if options.answers else Answers()
    attended = sys.stdin.isatty() and sys.stderr.isatty()
    only = answering.HEAD if options.socket else None
    if not attended and (lacking := answering.missing(answers, only)):
        no_terminal = "there is no terminal, so the operator cannot be asked"
        if not options.answers:
            raise ConfigError(f"--answers: missing; {no_terminal}. --print-answers prints a template")
        raise ConfigError(*(f"{options.answers}: {text}" for text in (no_terminal, *lacking)))
    watched = _watch_rate(options) > 0.0
    realtime = arguments.in_realtime(scenario, options.pace, watched and bool(options.socket))
    if options.page and not options.socket:
        raise ConfigError("--page: requires --socket")
    if options.arm_from_page and not options.page:
        raise ConfigError("--arm-from-page: requires --page")
    arguments.check_page_port(options)
    if not options.socket:
        _check_answers(scenario, answers, options)
        if watched:
            terminal.tell(
                ["watch: without --socket a watcher receives nothing, and its pulse ends with the first motion"]
            )
    return _test(options, scenario, answers, realtime, attended)


def _check_answers(scenario: Scenario, answers: Answers, options: arguments.Options) -> None:
    items = scenario.rig_file.checklist if scenario.rig_file is not None else ()
    Problems(
        problem
        for item in answers.checklist
        if item not in items
        for problem in unknown(f"{options.answers}: checklist", "item", item, items).problems
    ).refuse()
    if (port := Assembly(scenario).port).simulated:
        return
    named = [f"{act}.moves = {answering.YES}" for act in answering.MOVING if answers.moves(act)]
    named += ["checklist"] * bool(answers.checklist)
    named += [f"arm = {', '.join(answers.arm)}"] * bool(answers.arm)
    if named:
        raise ConfigError(
            f"{options.answers}: leave out {'; '.join(named)}. On a real rig ({port.label}), a person arms each "
            "rung and clears each motion at the terminal"
        )


def _watch_rate(options: arguments.Options) -> float:
    watch = files.load_rig(options.rig).watch
    return 0.0 if watch is None else watch.told


def _check_second(scenario: Scenario, answers: Answers, operator: str, asked: bool) -> None:
    planned = FULL in (answers.rungs or answering.ALL) and two_persons(FULL, scenario)
    if planned and not (asked and answers.second is None):
        check_second(operator, answers.second or "")


def _test(options: arguments.Options, scenario: Scenario, answers: Answers, realtime: bool, attended: bool) -> int:
    from rths_nodes.app.procedure.console import Console, complete, typed

    ladder = Ladder(scenario, answers.rungs or answering.ALL, answers.level, answers.time_ratio, realtime)
    ladder.check()
    show_log()
    screen = terminal.console(sys.stderr if options.json else sys.stdout)
    say = partial(_say, screen)
    console = Console(answers, typed if attended else None, say)
    record = _record(scenario, answers, console, tuple(ladder.planned))
    if options.socket:  # ask now: the page and client programs cannot answer these questions later
        complete(ladder, console, ladder.planned)
        ladder.check()
    folder = Path(options.record) if options.record else Path(terminal.RUNS) / record.test_id
    terminal.check_makable(folder / REPORT)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: exists; a test is never overwritten, so give another test_id or --record")
    record.specimen.history = _history(folder.absolute().parent, record.specimen.id)
    _check_second(scenario, answers, record.operator, attended or bool(options.socket))
    commissioned, barred = commissioning.in_effect(scenario, options.rig)
    terminal.tell([barred] if barred and any(RUNGS[name].moves for name in ladder.planned) else [])
    runner = ProcedureRunner(ladder, record, folder)
    runner.session.commissioned = commissioned
    record.commissioning = commissioned.reference if commissioned is not None else ""
    arms = ("--arm-from-page",) if options.arm_from_page else ()
    shown = (*arms, "--recordings", str(folder.parent), "--port", str(options.page_port))
    page: AbstractContextManager[int] = nullcontext(0)
    if options.page:
        page = page_beside(options.socket, say, shown)
    with page as process, signatures.kept(runner.session, options.rig, terminal.tell):
        console.attach(runner, terminal.progress, leads=not (options.answers or options.socket))
        if options.socket:
            from rths_nodes.app.procedure.served import Served

            code = Served(runner, console.tell, process).conduct(console, options.socket, _watch_rate(options))
        else:
            code = console.run()
    try:
        _tell(options, screen, runner.record, folder)
    except (ConfigError, RecordingError) as error:  # too late to refuse the test: the rig has moved
        terminal.tell([f"no report: {error}"])
        code = code or ExitCode.FAILED
    return code


def _record(scenario: Scenario, answers: Answers, console: Console, planned: tuple[str, ...]) -> ProcedureRecord:
    operator, specimen = console.value("operator"), console.value("specimen")
    head = scenario.rig_file
    return ProcedureRecord(
        test_id=answers.test_id or scenario.run_id(),
        scenario=scenario.name,
        scenario_hash=scenario.whole_hash(),
        rig=head.name if head else "",
        rig_description=head.description if head else "",
        laboratory=head.laboratory if head else "",
        client=scenario.recording.client,
        port=type(scenario.port).type_name,
        simulated=schema.simulation(scenario),
        rig_kind=schema.rig_kind(scenario),
        axis_names=schema.axis_names(scenario),
        operator=operator,
        specimen=SpecimenRecord(specimen),
        started=now(),
        planned=list(planned),
        versions={"rths_nodes": __version__, "python": sys.version.split()[0]},
        deviations=[] if planned == answering.ALL else [f"only these rungs are planned: {', '.join(planned)}"],
    )


def _history(parent: Path, specimen: str) -> list[dict[str, object]]:
    rows: dict[tuple[object, ...], dict[str, object]] = {}
    tests = parent.parent if procedure.exists(parent) else parent  # the test is a run in a series
    folders = sorted([*tests.iterdir(), *tests.glob("*/run_*")]) if tests.is_dir() else []
    for folder in folders:
        if not procedure.exists(folder):
            continue
        try:
            record = procedure.read(folder)
        except ConfigError as error:
            terminal.tell([f"history of the specimen: {error}"])
            continue
        earlier = record.specimen
        if earlier.id != specimen or record.simulation:
            continue
        if not record.outcome and not procedure.under_way(folder):
            hint = f"the test in {folder} was interrupted; complete its record with rths recover {quoted(folder)}"
            terminal.tell([f"history of the specimen: {hint}"])
        rows |= {(row.get("test"), row.get("date"), row.get("rung")): row for row in earlier.history}
    return sorted(rows.values(), key=lambda row: str(row.get("date")))


def _say(screen: Screen, shown: object) -> None:
    if isinstance(shown, str):
        screen.print(printable(shown, kept=terminal.LINES), markup=False)
    else:
        screen.print(shown)


def _tell(options: arguments.Options, screen: Screen, record: ProcedureRecord, folder: Path) -> None:
    if options.json:
        terminal.print_json(asdict(record))
    else:
        text = f"{record.test_id} ({record.rig_kind}): {record.ending}" + (
            f": {record.reason}" if record.reason else ""
        )
        _say(screen, record.named(text))
        _say(screen, f"record: {folder / 'procedure.yaml'}")
    if options.no_report or not procedure.exists(folder):
        return
    with terminal.page_of_test(folder / REPORT, "" if options.json else "report"):
        from rths_nodes.analysis.report import document

        if (path := procedure.last_moving(folder)) is None:
            document.write_record(record, folder / REPORT)
            return
        run, test = read_run(path), procedure.of_recording(path)
        try:
            document.write_report(run, folder / REPORT, True, test)
        except ConfigError as error:  # the whole structure needs a model of each specimen
            text = f"The response is not compared with the entire structure in one piece: {error}"
            document.write_report(replace(run, notes=(*run.notes, text)), folder / REPORT, False, test)


# Commissioning

FREE = (
    "Do you confirm that no specimen is mounted, that all axes are near the middle of their stroke, that no "
    "person is near the rig, and that you can reach the emergency stop of the rig?"
)


def commission_arguments(add: arguments.Arguments) -> None:
    add("rig", "name of a shipped rig file, or path of a YAML file")
    add("--out FILE", "file for the result; default: RIG.commissioned.yaml next to the rig file")
    text = "pace of the motions: realtime (required for a real rig) or lockstep (for an emulator)"
    add("--pace", text, REALTIME, choices=PACES)


def commission_command(options: arguments.Options) -> int:
    from rths_nodes.app.procedure.console import Console, typed

    file = files.locate(options.rig, files.RIG)
    rig = files.load_rig(file)
    if rig.port.builds_axes:
        raise ConfigError(
            f"port.type = {type(rig.port).type_name!r}: the rig is simulated in this process, so there is nothing "
            "to commission"
        )
    scenario = scenario_of(rig)
    realtime, dialogue = arguments.in_realtime(scenario, options.pace), Console(Answers(), typed, print)
    warning, kind = rig.warning, rig_kind(scenario)
    delay = f" after {warning.output} was on for {warning.seconds:g} s" if warning else ""
    lead = AtTerminal(dialogue, kind, 0.0 if realtime else scenario.dt, f"the motion begins{delay or ' now'}")
    bench = Bench(scenario, realtime, lead)
    warning_of(scenario, bench.port)
    free = override(scenario, [f"axes.{name}.specimen=null" for name in scenario.axes])
    for caution in judgement.cautions(free, bench.port.simulated):
        print(f"caution: {caution}")
    out = Path(options.out) if options.out else commissioning.beside(file)
    terminal.check_writable(out)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError("rths commission: requires a terminal for the dialogue with the operator")
    with raised_at_once():  # on a signal, the session ends and failed rows are written
        return _commission(bench, lead, dialogue, out)


def _commission(bench: Bench, lead: AtTerminal, dialogue: Console, out: Path) -> int:
    rows: list[CommissioningRow] = []

    def report(row: CommissioningRow) -> None:
        rows.append(row)
        speed = f", {row.speed}" if row.speed else ""
        print(f"  {row.verdict.upper():9} {row.cause}, {row.what}{speed}:", end=" ")
        print(f"{row.measured} (stated: {row.stated})", flush=True)

    try:
        print(f"{rig_kind(bench.scenario)}: {bench.scenario.rig_file.name if bench.scenario.rig_file else ''}")
        operator, second = _names(dialogue)
        if not dialogue.yes(FREE):
            raise ConfigError(
                "not confirmed: commissioning requires that no specimen is mounted, and that no person is near "
                "the rig"
            )
        commission(bench, report=report)
        if bench.home is None:
            raise ConfigError(f"no result is written, because nothing was measured: {rows[-1].measured}")
        result = _result(bench, rows)
        lead.settle()
        print(f"\n{result.counts}")
        result.operator = operator if dialogue.yes(f"{operator}, do you sign this result?") else ""
        result.second_person = second if dialogue.yes(f"{second}, do you sign this result?") else ""
    except KeyboardInterrupt as left:
        failed = any(row.verdict == FAILED for row in rows)
        ending = "the result is not signed" if failed else "no result is written"
        print(f"rths: {str(left) or 'interrupted'}: {ending}", file=sys.stderr)
        if failed:
            _write(_result(bench, rows), out)
        return ExitCode.HELD
    while True:
        try:
            _write(result, out)
            return ExitCode.FAILED if result.failed else ExitCode.FINISHED
        except RecordingError as error:
            if not dialogue.yes(f"{error}. Try again now?"):
                return ExitCode.FAILED


def _write(result: Commissioning, out: Path) -> None:
    from rths_nodes.analysis.report.document import write_sheet

    sheet = out.with_suffix(".html")
    for path in commissioning.keep_older(out, sheet):
        print(f"kept: {path}")
    commissioning.write(result, out)
    print(f"commissioning: {out}")
    with terminal.page_of_test(sheet, "sheet to print"):
        write_sheet(result, sheet)


def _result(bench: Bench, rows: list[CommissioningRow]) -> Commissioning:
    scenario, rig = bench.scenario, bench.scenario.rig_file
    assert rig is not None  # the scenario was read from a rig file
    axes = {}
    for name, axis in scenario.axes.items():
        on_rig, limits = axis.rig_axis, axis.limits
        assert on_rig is not None
        text = f"{1e3 * limits.stroke:.4g} mm, {limits.velocity:.4g} m/s, {1e-3 * limits.force:.4g} kN"
        text += f", {limits.deceleration:.4g} m/s²"
        axes[name] = AxisHardware(on_rig.valve, on_rig.force.sensor, on_rig.displacement.sensor, text)
    return Commissioning(
        rig=rig.name,
        rig_hash=rig_hash(scenario),
        build=bench.build,
        port=type(scenario.port).type_name,
        operator="",
        second_person="",
        date=plain.now(),
        versions={"rths_nodes": __version__, "python": sys.version.split()[0]},
        rows=rows,
        rig_kind=rig_kind(scenario),
        description=rig.description,
        controller=rig.controller,
        axes=axes,
        proves=proofs(),
    )


def _names(dialogue: Console) -> list[str]:
    names: list[str] = []
    for question in ("operator: your name: ", "name of the second person, who is with you: "):
        while not (name := dialogue.line(question)) or (names and same_person(name, *names)):
            print("enter two different names")
        names.append(name)
    return names


class AtTerminal:
    """Guides the operator through commissioning at a terminal.

    ``rest`` is the pause between two calls of ``tick`` while a question is open, s. The text ``cleared`` is
    printed after each CLEAR.
    """

    def __init__(self, dialogue: Console, kind: str, rest: float, cleared: str) -> None:
        self._dialogue, self._kind, self._rest, self._cleared = dialogue, kind, rest, cleared
        self._number, self._settling = 0, False
        self._asking: Future[None] | None = None

    def ask(self, instruction: str, tick: Callable[[], object] | None = None, moves: bool = False) -> None:
        question = self._numbered(f"{instruction}.\n{answering.TYPE_CLEAR if moves else 'Then press Enter: '}")

        def ask() -> None:
            while self._dialogue.exact_line(question) != CLEAR and moves and not self._settling:
                print(f"nothing has moved, because the answer was not {CLEAR}")
            if moves and not self._settling:
                print(self._cleared, flush=True)

        if tick is None:
            ask()
            return
        asking = self._asking = begun(ask, "question")
        while not asking.done():
            tick()
            time.sleep(self._rest)
        asking.result()

    def agrees(self, question: str) -> bool:
        return self._dialogue.yes(self._numbered(question))

    def settle(self) -> None:
        """Wait for Enter if a question is still open when the motion has ended."""
        if self._asking is not None and not self._asking.done():
            self._settling = True
            print("Press Enter: ", end="", file=sys.stderr, flush=True)
            wait([self._asking])
            self._settling = False

    def _numbered(self, question: str) -> str:
        self.settle()
        self._number += 1
        return f"\n{self._number}. {self._kind}: {question}"
