# SPDX-License-Identifier: Apache-2.0
"""Operator program that guides a person through a complete test of ``rths test --socket``.

    python3 whole_test.py [NAMESPACE]     # as the user of the test, on the same computer

The program performs the acts that an operator would enter at the terminal. The person confirms the offsets and the
unloaded specimen, signs for each unverified item, and arms each rung that moves the rig by typing the first
characters of its hash. An act refers to the situation of the last answer: it is refused after a stop or in another
state. Ctrl-C stops the rig. The program finishes the test as soon as an act is refused or declined.
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
"""Number of characters of the hash that a person types to arm a rung."""

POLL_S = 0.1
MOVING = (State.CHECKING, State.POSITIONING, State.RUNNING, State.STOPPING, State.RESUMING, State.UNLOADING)


class Refused(Exception):
    """Raised if an act was refused or the person declined it; the test ends."""


def agrees(question: str) -> bool:
    """Ask the person a question. Return True for yes; the default is no."""
    return typed(f"{question} [y/N] ").strip().lower() in ("y", "yes")


class Guide:
    """Guides ``person`` through the test of a ``namespace``."""

    def __init__(self, namespace: str, person: str) -> None:
        self._operator, self._person = SocketOperator(namespace), person
        self.answer = self._operator.ask()

    def do(self, act: str, **arguments: str) -> None:
        """Perform an act and print its outcome. Raises Refused."""
        self.answer = answer = self._operator.ask(act, self._person, **arguments)
        print(f"{act}: {answer.result or 'done' if answer.done else f'refused: {answer.reason}'}", flush=True)
        if not answer.done:
            raise Refused(act)

    def agree(self, question: str) -> None:
        """Raise Refused unless the person answers yes."""
        if not agrees(question):
            raise Refused(question)

    def conduct(self) -> None:
        """Conduct the test up to the last rung. Raises Refused."""
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
        """Stop any motion, and wait until the rig is at rest."""
        self.answer = self._operator.ask("stop", self._person, reason="interrupted at the program")
        while self.answer.state in MOVING:
            time.sleep(POLL_S)
            self.answer = self._operator.ask()

    def finish(self) -> None:
        """Finish the test if this is possible."""
        if not self._operator.ask().possible["finish"]:
            self.do("finish")

    def take_offsets(self) -> None:
        """Measure the offsets of the sensors at rest, and ask the person to confirm them."""
        self.do("take_offsets", seconds="0.5")
        self.agree(f"confirm these offsets ({self.answer.offsets_hash})?")
        unloaded = agrees("is the specimen unloaded now, so that its force can be tared?")
        self.do("confirm_offsets", hash=self.answer.offsets_hash, unloaded=str(unloaded).lower())

    def sign(self) -> None:
        """Print the reason, then ask for a signature for each unverified item."""
        if self.answer.to_sign:
            print(self.answer.possible["position"], flush=True)
        for item in self.answer.to_sign:
            self.agree(f"{item}; do you sign for it?")
            self.do("sign_for", what=item)

    def arm(self, rung: str) -> None:
        """Arm a rung. If it moves the rig, the person types its letter and the first characters of the hash."""
        scenario_hash, offsets_hash = self.answer.scenario_hash, self.answer.offsets_hash
        if RUNGS[rung].moves:
            head = typed(f"to arm rung {rung} ({scenario_hash}), type {rung} and the first {HEAD} characters: ")
            if head.replace(" ", "").lower() != rung + scenario_hash[:HEAD]:
                raise Refused(f"rung {rung} is not armed")
        self.do("arm", rung=rung, scenario_hash=scenario_hash, offsets_hash=offsets_hash)


def main() -> int:
    """Run the test. Return the exit code, which is 0 if the last rung has finished."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("namespace", nargs="?", default="rths")
    options = parser.parse_args()
    try:
        guide = Guide(options.namespace, typed("your name: ").strip())
    except (ConfigError, EOFError) as error:
        print(error or "the terminal is closed", file=sys.stderr)
        return 2
    code = 0
    try:
        guide.conduct()
    except KeyboardInterrupt:
        code = 130
        guide.stop()
    except (Refused, ConfigError, EOFError) as error:
        print(f"the test ends: {error or 'the terminal is closed'}", flush=True)
        code = 1
    try:
        guide.finish()
    except (Refused, ConfigError) as error:
        print(error, file=sys.stderr)
        code = code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
