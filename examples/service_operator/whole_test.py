"""An operator that is a program: does a whole test by the service of ``rths test --services``, and tells each act.

    python3 whole_test.py [NAMESPACE]

It goes from act to act as an operator at the terminal would, names the hashes when it arms a rung, and finishes at
the first act that is refused. A page or a robot does the same.
"""

import sys

import rclpy
from rclpy.node import Node

from rths_nodes.msg import TestState
from rths_nodes.srv import Act


class Operator(Node):
    """Calls the service, one act after another."""

    def __init__(self, namespace: str) -> None:
        super().__init__("program", namespace=namespace)
        self.client = self.create_client(Act, "operator/act")
        if not self.client.wait_for_service(30.0):
            sys.exit(f"nobody serves {self.client.srv_name}: is rths test --services running?")

    def act(self, act: str = "", **arguments: str) -> Act.Response:
        """Do an act and wait until it is over."""
        request = Act.Request(act=act, names=list(arguments), values=list(arguments.values()), by="a program")
        asked = self.client.call_async(request)
        rclpy.spin_until_future_complete(self, asked)
        told = asked.result()
        print(
            f"{act or 'situation'}: {told.result or 'done' if told.done else f'refused: {told.reason}'}",
            flush=True,
        )
        return told

    def done(self, act: str, **arguments: str) -> Act.Response:
        """As act, but what is refused ends the test."""
        told = self.act(act, **arguments)
        if not told.done:
            if possible(told, "finish"):
                self.act("finish")
            sys.exit(1)
        return told


def possible(told: Act.Response, act: str) -> bool:
    return not dict(zip(told.acts, told.why_not, strict=True))[act]


def main() -> None:
    rclpy.init()
    operator = Operator(sys.argv[1] if len(sys.argv) > 1 else "rths")
    told = operator.act()
    while told.next_rung and possible(told, "rehearse"):
        told = operator.done("rehearse", rung=told.next_rung)
    if told.next_rung:
        operator.done("connect")
        told = operator.done("take_offsets", seconds="0.5")
        operator.done("confirm_offsets", hash=told.offsets_hash, unloaded="true")
        told = operator.done("check")
        while told.next_rung:
            while possible(told, "sign_for"):
                words = dict(zip(told.acts, told.why_not, strict=True))["position"]
                told = operator.done(
                    "sign_for", what=words.splitlines()[0].removesuffix(": sign for it, or verify it")
                )
            told = operator.done("position")
            operator.done(
                "arm", rung=told.next_rung, scenario_hash=told.scenario_hash, offsets_hash=told.offsets_hash
            )
            rung = told.next_rung
            told = operator.done("run")
            if told.next_rung == rung or told.state == TestState.TRIPPED:
                print(f"rung {rung} has not finished")
                break
        operator.done("finish")
    operator.destroy_node()
    rclpy.shutdown()


main()
