"""Between a rig and the test: the forces of the specimens in place of what the load cells show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from rths_nodes.core.protocols import Port
from rths_nodes.core.samples import Measurement
from rths_nodes.laboratory.corrections import ForceCorrections


class CorrectedPort:
    """Everything is that of ``port``, but for the forces, which go through ``corrections``."""

    def __init__(self, port: Port, corrections: ForceCorrections) -> None:
        self._port, self._corrections = port, corrections
        self.auxiliary_names = (*port.auxiliary_names, *corrections.names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def open(self, pacer: Callable[[], int] | None = None) -> None:
        """Connect to the rig."""
        self._corrections.reset()
        self._port.open(pacer)

    def read(self) -> Measurement:
        """The Measurement of the tick, with the forces of the specimens."""
        return self._corrections.corrected(self._port.read())

    def truth(self) -> Measurement | None:
        """The true, noise-free state of the tick; None where it is not known."""
        true = self._port.truth()
        return None if true is None else self._corrections.beside(true)


def force_corrected(port: Port, axes: Mapping[str, Any], dt: float, simulated: bool) -> Port:
    """``port``, of which the ``rig_axis`` of ``axes`` say what its forces are; itself where they say nothing."""
    found = ForceCorrections(axes, port.auxiliary_names, dt, simulated)
    return cast(Port, CorrectedPort(port, found)) if found else port
