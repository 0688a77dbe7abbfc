# SPDX-License-Identifier: Apache-2.0
"""An operator by a program: leads a person through a whole test of ``rths test --services``.

    python3 whole_test.py [NAMESPACE]               # as the user of the test: by the socket
    python3 whole_test.py [NAMESPACE] --key FILE    # from anywhere: by service and action, signed

It goes from act to act as the terminal would. What a person answers for is asked: whether the offsets are right
and the specimen carries nothing, each thing that nothing has verified, and each rung that moves, which is armed by
the head of its hash. Ctrl-C stops the rig. It finishes at the first act that is refused or not wanted. A page or a
robot does the same.
"""

import argparse
import sys
import time
from typing import Any

from rths_nodes.app.procedure.dialogue import typed, typed_unseen
from rths_nodes.app.procedure.operator_socket import Ask, by_socket
from rths_nodes.core import key_file
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire.acts import Answer, Signer, of_message
from rths_nodes.loop.scenario.roles import ROLES
from rths_nodes.loop.supervision.states import State
from rths_nodes.procedure.acts import ACTS
from rths_nodes.procedure.consents import OF_BOTH
from rths_nodes.procedure.records import RUNGS

HEAD = 6
"""Characters of a hash that a person types to arm."""

LOOK_S = 0.1
MOVING = (State.CHECKING, State.POSITIONING, State.RUNNING, State.STOPPING, State.RESUMING, State.UNLOADING)


def by_service(namespace: str, key: bytes) -> Ask:
    """Acts by the service, and by the action where they take their time.

    Each is signed with the nonce of an answer that was asked for just before.
    """
    import rclpy
    from rclpy.action import ActionClient
    from rclpy.node import Node
    from rclpy.signals import SignalHandlerOptions

    from rths_nodes.action import Act as LastingAct
    from rths_nodes.srv import Act

    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)  # after Ctrl-C there is a stop to be sent
    node, signer = Node("program", namespace=namespace), Signer(key)
    client, actions = node.create_client(Act, "operator/act"), ActionClient(node, LastingAct, "operator/act")
    if not (client.wait_for_service(30.0) and actions.wait_for_server(30.0)):
        raise ConfigError(f"nobody serves {client.srv_name}: is rths test --services running?")

    def answer(act: str, asked: Any) -> Any:
        while not asked.done():
            if not client.service_is_ready():
                raise ConfigError(f"{act or 'situation'}: was not answered: the test is over")
            rclpy.spin_until_future_complete(node, asked, timeout_sec=LOOK_S)
        return asked.result()

    def send(act: str = "", by: str = "", **arguments: str) -> Answer:
        request = signer.request(act, by, **arguments)
        given = request.fields()
        if act in ACTS and ACTS[act].lasting:
            goal = answer(act, actions.send_goal_async(LastingAct.Goal(**given)))
            told = answer(act, goal.get_result_async()).result
        else:
            told = answer(act, client.call_async(Act.Request(**given)))
        return signer.accept(request, of_message(Answer, told))

    def ask(act: str = "", by: str = "", **arguments: str) -> Answer:
        if act != "stop":  # which waits for nothing
            send()
        return send(act, by, **arguments)

    return ask


class Refused(Exception):
    """The test ends here: an act was refused, or the person does not want it."""


class Leader:
    """Leads ``person`` through the test by the acts that ``ask`` does."""

    def __init__(self, ask: Ask, person: str) -> None:
        self._ask, self._person = ask, person
        self.told = ask()

    def do(self, act: str, **arguments: str) -> None:
        """Do an act, and tell what came of it. Raises Refused."""
        self.told = self._ask(act, by=self._person, **arguments)
        print(
            f"{act}: {self.told.result or 'done' if self.told.done else f'refused: {self.told.reason}'}",
            flush=True,
        )
        if not self.told.done:
            raise Refused(act)

    def agree(self, question: str) -> None:
        """Raises Refused unless the person says yes."""
        if typed(f"{question} [y/N] ").strip().lower() not in ("y", "yes"):
            raise Refused(question)

    def lead(self) -> None:
        """The whole test, up to the last rung."""
        while self.told.next_rung and not RUNGS[self.told.next_rung].on_rig:
            self.do("rehearse", rung=self.told.next_rung)
        if not self.told.next_rung:
            return
        self.do("connect")
        self.take_offsets()
        self.do("check")
        self.sign()
        while rung := self.told.next_rung:
            self.do("position")
            self.arm(rung)
            self.do("run")
            if self.told.next_rung == rung or self.told.state == State.TRIPPED:
                raise Refused(f"rung {rung} has not finished")

    def stop(self) -> None:
        """Stop whatever moves, and wait until it rests."""
        self.told = self._ask("stop", by=self._person, reason="the person at the program has interrupted it")
        while self.told.state in MOVING:
            time.sleep(LOOK_S)
            self.told = self._ask()

    def finish(self) -> None:
        """End the test, where that is possible."""
        if not self._ask().possible["finish"]:
            self.do("finish")

    def take_offsets(self) -> None:
        """Ask for what the sensors show at rest; a person says whether it counts."""
        self.do("take_offsets", seconds="0.5")
        self.agree(f"confirm these offsets ({self.told.offsets_hash})?")
        carries_nothing = typed("does the specimen carry nothing now, so that its force is tared? [y/N] ").strip()
        unloaded = "true" if carries_nothing.lower() in ("y", "yes") else "false"
        self.do("confirm_offsets", hash=self.told.offsets_hash, unloaded=unloaded)

    def sign(self) -> None:
        """Each thing that nothing has verified, one for one; why stands in front of them."""
        if self.told.to_sign:
            print(self.told.possible["position"], flush=True)
        for what in self.told.to_sign:
            self.agree(f"{what}; do you sign for it?")
            self.consent(what=what)
            self.do("sign_for", what=what)

    def consent(self, **to: str) -> None:
        """Where the rig file has roles, both people type their keys; by the socket, which nobody overhears."""
        for role in () if self.told.possible["consent"] else ROLES:
            self.do(
                "consent",
                role=role,
                name=typed(f"name of the {role}: "),
                key=typed_unseen(f"key of the {role}: "),
                **to,
            )

    def arm(self, rung: str) -> None:
        """A rung that moves is armed by the head of its hash, which a person types."""
        told = self.told
        if RUNGS[rung].moves:
            head = typed(f"to arm rung {rung} ({told.scenario_hash}), type the first {HEAD} characters: ").strip()
            if head.lower() != told.scenario_hash[:HEAD]:
                raise Refused(f"rung {rung} is not armed")
        hashes = {"rung": rung, "scenario_hash": told.scenario_hash, "offsets_hash": told.offsets_hash}
        if rung in OF_BOTH:
            self.consent(**hashes)
        self.do("arm", **hashes)


def main() -> int:
    """The exit code: 0 where the last rung has finished."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("namespace", nargs="?", default="rths")
    parser.add_argument("--key", metavar="FILE", help="sign with this key, by the service")
    given = parser.parse_args()
    try:
        ask = by_service(given.namespace, key_file.read(given.key)) if given.key else by_socket(given.namespace)
        leader = Leader(ask, typed("your name: ").strip())
    except (ConfigError, EOFError) as error:
        print(error or "nobody is there", file=sys.stderr)
        return 2
    code = 0
    try:
        leader.lead()
    except KeyboardInterrupt:
        code = 130
        leader.stop()
    except (Refused, ConfigError, EOFError) as ended:
        print(f"the test ends: {ended or 'nobody is there'}", flush=True)
        code = 1
    try:
        leader.finish()
    except (Refused, ConfigError) as left:
        print(left, file=sys.stderr)
        code = code or 1
    return code


if __name__ == "__main__":
    sys.exit(main())
