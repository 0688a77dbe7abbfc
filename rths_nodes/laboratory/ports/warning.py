# SPDX-License-Identifier: Apache-2.0
"""The warning output of a port: a digital output of the rig for a horn or a lamp, on before each motion."""

from __future__ import annotations

from rths_nodes.core.declarations import OfPort


class WarningPort(OfPort):
    """Base of a port with a warning output. ``warning`` is its state from the next command on."""

    can_warn = True
    warning = False

    def warn(self, on: bool) -> None:
        """Switch the warning output."""
        self.warning = on
