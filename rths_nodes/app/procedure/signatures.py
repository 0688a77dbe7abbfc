"""Cautions that were signed for in an earlier test on the same rig, and those of this test for later ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rths_nodes.app.procedure.conduct import Conductor, now
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.procedure.commissioning import rig_hash
from rths_nodes.loop.scenario import files
from rths_nodes.recording import signatures


@contextmanager
def kept(conductor: Conductor, rig: str, tell: Callable[[list[str]], None]) -> Iterator[None]:
    """While a test is led on the rig file ``rig``: what was signed for before, and at its end what is now.

    Raises ConfigError for a file of signatures that is damaged; one that cannot be written is only told.
    """
    clearance, scenario = conductor.session.clearance, conductor.ladder.scenario
    if not clearance.cautions:
        yield
        return
    file, hashed = files.locate(rig, files.RIG), rig_hash(scenario)
    clearance.signed_before({words: str(each) for words, each in signatures.of_rig(file, hashed).items()})
    try:
        yield
    finally:
        try:
            signatures.add(file, hashed, clearance.signed_cautions, conductor.record.operator, now())
        except ConfigError as error:
            tell([str(error)])
