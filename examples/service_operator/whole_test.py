# SPDX-License-Identifier: Apache-2.0
"""An operator by a program: leads a person through a whole test of ``rths test --socket``.

    python3 whole_test.py [NAMESPACE]     # as the user of the test, on the same computer

It goes from act to act as the terminal would. It asks the person what only a person can answer for: whether the
offsets are right and the specimen carries nothing, each thing that nothing has verified, and each rung that moves,
which is armed by the head of its hash. An act counts for the situation of the last answer: after a stop, or in
another state, it is refused. Ctrl-C stops the rig. The program finishes the test at the first act that is refused
or not wanted.
"""

import argparse
import sys
import time

from rths_nodes.app.procedure.console import typed
from rths_nodes.app.procedure.operator_socket import SocketOperator
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.procedure_record import RUNGS
from rths_nodes.loop.supervision.states import State

HEAD = 6
"""Characters of a hash that a person types to arm."""

LOOK_S = 0.1
MOVING = (State.CHECKING, State.POSITIONING, State.RUNNING, State.STOPPING, State.RESUMING, State.UNLOADING)


class Refused(Exception):
    """The test ends here: an act was refused, or the person does not want it."""


class Leader:
    """Leads ``person`` through the test of a ``namespace``."""

    def __init__(self, namespace: str, person: str) -> None:
        self._operator, self._person = SocketOperator(namespace), person
        self.answer = self._operator.ask()

    def do(self, act: str, **arguments: str) -> None:
        """Do an act, and print its outcome. Raises Refused."""
        self.answer = answer = self._operator.ask(act, self._person, **arguments)
        print(f"{act}: {answer.result or 'done' if answer.done else f'refused: {answer.reason}'}", flush=True)
        if not answer.done:
            raise Refused(act)

    def agree(self, question: str) -> None:
        """Raises Refused unless the person says yes."""
        if typed(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
            raise Refused(question)

    def lead(self) -> None:
        """The whole test, up to the last rung."""
        while self.answer.next_rung and not RUNGS[self.answer.next_rung].on_rig:
            self.do("rehearse", rung=self.answer.next_rung)
        if not self.answer.next_rung:
            return
        self.do("connect")
        self.take_offsets()
        self.do("check", clear="CLEAR")
        self.sign()
        while rung := self.answer.next_rung:
            self.do("position", clear="CLEAR")
            self.arm(rung)
            self.do("run", clear="CLEAR")
            if self.answer.next_rung == rung or self.answer.state == State.TRIPPED:
                raise Refused(f"rung {rung} has not finished")

    def stop(self) -> None:
        """Stop whatever moves, and wait until it rests."""
        self.answer = self._operator.ask("stop", self._person, reason="interrupted at the program")
        while self.answer.state in MOVING:
            time.sleep(LOOK_S)
            self.answer = self._operator.ask()

    def finish(self) -> None:
        """End the test, if that is possible."""
        if not self._operator.ask().possible["finish"]:
            self.do("finish")

    def take_offsets(self) -> None:
        """Take what the sensors show at rest; the person says whether it counts."""
        self.do("take_offsets", seconds="0.5")
        self.agree(f"confirm these offsets ({self.answer.offsets_hash})?")
        carries_nothing = typed("does the specimen carry nothing now, so that its force is tared? [y/N] ").strip()
        unloaded = "true" if carries_nothing.lower() in ("y", "yes") else "false"
        self.do("confirm_offsets", hash=self.answer.offsets_hash, unloaded=unloaded)

    def sign(self) -> None:
        """Ask for the signature for each thing that nothing has verified, with the reason first."""
        if self.answer.to_sign:
            print(self.answer.possible["position"], flush=True)
        for what in self.answer.to_sign:
            self.agree(f"{what}; do you sign for it?")
            self.do("sign_for", what=what)

    def arm(self, rung: str) -> None:
        """Arm a rung; one that moves by its letter and the head of its hash, which the person types."""
        scenario_hash, offsets_hash = self.answer.scenario_hash, self.answer.offsets_hash
        if RUNGS[rung].moves:
            head = typed(f"to arm rung {rung} ({scenario_hash}), type {rung} and the first {HEAD} characters: ")
            if head.replace(" ", "").lower() != rung + scenario_hash[:HEAD]:
                raise Refused(f"rung {rung} is not armed")
        self.do("arm", rung=rung, scenario_hash=scenario_hash, offsets_hash=offsets_hash)


def main() -> int:
    """The exit code: 0 if the last rung has finished."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("namespace", nargs="?", default="rths")
    options = parser.parse_args()
    try:
        leader = Leader(options.namespace, typed("your name: ").strip())
    except (ConfigError, EOFError) as error:
        print(error or "the terminal is closed", file=sys.stderr)
        return 2
    code = 0
    try:
        leader.lead()
    except KeyboardInterrupt:
        code = 130
        leader.stop()
    except (Refused, ConfigError, EOFError) as ended:
        print(f"the test ends: {ended or 'the terminal is closed'}", flush=True)
        code = 1
    try:
        leader.finish()
    except (Refused, ConfigError) as left:
        print(left, file=sys.stderr)
        code = code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
