"""Of nodes that hold something outside of their process, such as a process of a model: they give it back."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from rclpy.lifecycle import TransitionCallbackReturn

from rths_nodes.core.protocols import Port
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.ros.nodes.base import RthsNode


class OutsideNode(RthsNode):
    """Closes what its ``build`` has put into ``outside``: at the latest when it is cleaned up or destroyed.

    A port that is ``handed`` in takes the place of the scenario's: a procedure has opened it, and closes it.
    """

    def __init__(self, *args: Any, handed: Port | None = None, **kwargs: Any) -> None:
        self.outside = ExitStack()
        self._handed = handed
        super().__init__(*args, **kwargs)

    def assemble(self, scenario: Scenario) -> Assembly:
        """The parts of the test, with the handed port."""
        return Assembly(scenario, self._handed)

    def on_cleanup(self, state: Any) -> Any:
        """As of all nodes; then what is outside is given back."""
        done = super().on_cleanup(state)
        if done == TransitionCallbackReturn.SUCCESS:
            self.outside.close()
        return done

    def destroy_node(self) -> None:
        """However the test has ended."""
        self.outside.close()
        super().destroy_node()
