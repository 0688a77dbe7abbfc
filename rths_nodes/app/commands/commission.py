# SPDX-License-Identifier: Apache-2.0
"""``rths commission``: measure every stop and limit of a rig before a specimen is mounted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.app.commands import arguments, terminal
from rths_nodes.app.procedure.answers import Answers
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.version import __version__
from rths_nodes.loop.commissioning import FAILED, AxisHardware, Commissioning, CommissioningRow, rig_hash
from rths_nodes.loop.interrupts import begun, raised_at_once
from rths_nodes.loop.options import PACES, REALTIME
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files, judgement
from rths_nodes.loop.scenario.overrides import override
from rths_nodes.loop.scenario.schema import rig_kind
from rths_nodes.procedure.commissioning.rig import Bench
from rths_nodes.procedure.commissioning.trials import commission, proofs, scenario_of
from rths_nodes.procedure.drive import warning_of
from rths_nodes.procedure.session import CLEAR
from rths_nodes.recording import commissioning, plain

if TYPE_CHECKING:
    from rths_nodes.app.procedure.console import Console

FREE = (
    "Do you confirm that no specimen is mounted, that all axes are near the middle of their stroke, that no "
    "person is near the rig, and that you can reach the emergency stop of the rig?"
)


def add_arguments(add: arguments.Arguments) -> None:
    add("rig", "path of a rig file, or name of a shipped one")
    add("--out FILE", "file of the result; default: RIG.commissioned.yaml next to the rig file")
    text = "pace of the motions: realtime (required for a real rig) or lockstep (for an emulator)"
    add("--pace", text, REALTIME, choices=PACES)


def run(options: arguments.Options) -> int:
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
    with raised_at_once():  # a signal ends the session at the rig, and writes failed rows
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
    _write(result, out)
    return ExitCode.FAILED if result.failed else ExitCode.FINISHED


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
        while not (name := dialogue.line(question)) or name.casefold() in map(str.casefold, names):
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
        from rths_nodes.app.procedure.console import TYPE_CLEAR

        question = self._numbered(f"{instruction}.\n{TYPE_CLEAR if moves else 'Then press Enter: '}")

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
        return bool(self._dialogue.yes(self._numbered(question)))

    def settle(self) -> None:
        """Wait for Enter if the operator did not answer before the motion ended."""
        if self._asking is not None and not self._asking.done():
            self._settling = True
            print("Press Enter: ", end="", file=sys.stderr, flush=True)
            wait([self._asking])
            self._settling = False

    def _numbered(self, question: str) -> str:
        self.settle()
        self._number += 1
        return f"\n{self._number}. {self._kind}: {question}"
