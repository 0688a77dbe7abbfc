# SPDX-License-Identifier: Apache-2.0
"""Shared parts of ports: longest wait for a command, trigger output, and warning before motions.

A port with a trigger output declares the parameter ``trigger``, and has a :class:`Trigger` as the attribute
``trigger``. An auxiliary channel reports the actual state of the output in each sample.
"""

from __future__ import annotations

from rths_nodes.core.parameters import Field, flag, number
from rths_nodes.core.protocols import OfPort

LONGEST_WAIT_S = 3600.0
"""Largest permitted wait, s. A rig under pressure must not wait longer for a command."""
TRIGGER_CHANNEL = "trigger [1]"


def longest_wait_parameter() -> Field:
    return number(
        "time without a command after which the rig trips", "s", 5.0, more_than=0.0, at_most=LONGEST_WAIT_S
    )


def trigger_parameter() -> Field:
    return flag(
        "the rig has a digital output that triggers other data acquisition; it is high from the first sample "
        "of a running test to the last sample or the safe stop; the auxiliary channel trigger [1] reports its "
        "state",
        False,
    )


class Trigger:
    """Output of the rig that triggers other data acquisition. A change takes effect with the next command.

    ``high`` can be true only if the output is ``wired``.
    """

    def __init__(self, wired: bool) -> None:
        self.wired, self.high = wired, False

    def set(self, high: bool) -> None:
        self.high = high and self.wired


def set_trigger(port: OfPort, high: bool) -> None:
    if isinstance(port.trigger, Trigger):
        port.trigger.set(high)


class WarningPort(OfPort):
    can_warn = True
    warning = False

    def warn(self, on: bool) -> None:
        self.warning = on
