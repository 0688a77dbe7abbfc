# SPDX-License-Identifier: Apache-2.0
"""Signatures of operators for cautions, stored for later tests on the same rig.

Signatures are stored in ``RIG.signed.yaml`` next to the rig file, with the ``rig_hash`` for which they are valid.
A change of port, channels or limits voids the signatures. A caution with a different value needs a new signature.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.text_files import reason, write
from rths_nodes.loop.commissioning import rig_hash
from rths_nodes.loop.scenario import files
from rths_nodes.recording import plain

if TYPE_CHECKING:
    from rths_nodes.procedure.session import RigSession

SUFFIX = ".signed.yaml"
VERSION = 1
HEAD = (
    "# Cautions about the values of this rig and of its tests that an operator has signed for. Written by\n"
    "# rths test; do not edit. Signatures are valid for the port, channels and limits at the time of signing.\n"
)


@dataclass
class Signature:
    """Signature of the operator ``by`` for a caution, with the ``date`` in ISO 8601.

    ``responsible`` is a second person who consented. Only files of versions up to 0.9.0 contain this field.
    """

    caution: str
    by: str
    date: str
    responsible: str = ""

    def __str__(self) -> str:
        both = f" and {self.responsible}" if self.responsible else ""
        return f"by {self.by}{both} on {self.date}"


@dataclass
class Signatures:
    rig_hash: str
    signatures: list[Signature] = field(default_factory=list)


def of_rig(rig: Path | str, rig_hash: str) -> dict[str, Signature]:
    """Return the signatures for the rig file ``rig`` by caution. The result is empty if ``rig_hash`` has changed.

    Raises ConfigError if the signatures cannot be read.
    """
    path = Path(rig).with_suffix(SUFFIX)
    if not path.exists():
        return {}
    stored = plain.read(Signatures, path, VERSION)
    return {signature.caution: signature for signature in stored.signatures} if stored.rig_hash == rig_hash else {}


def add(rig: Path | str, rig_hash: str, cautions: Collection[str], by: str, date: str) -> None:
    """Store signatures of ``by`` for ``cautions``. Raises ConfigError if the file cannot be read or written."""
    signatures = of_rig(rig, rig_hash)
    new = [Signature(caution, by, date) for caution in sorted(cautions) if caution not in signatures]
    if not new:
        return
    path = Path(rig).with_suffix(SUFFIX)
    try:
        write(path, plain.text_of(Signatures(rig_hash, [*signatures.values(), *new]), VERSION, HEAD))
    except OSError as error:
        raise ConfigError(f"{path}: the signatures cannot be written ({reason(error)})") from error


@contextmanager
def kept(session: RigSession, rig: str, tell: Callable[[list[str]], None]) -> Iterator[None]:
    """Apply the stored signatures for the rig file ``rig``, and store new signatures after the ``with`` block.

    Raises ConfigError if the signatures cannot be read. A failure to store signatures is only reported.
    """
    clearance = session.clearance
    if not clearance.cautions:
        yield
        return
    stored = files.locate(rig, files.RIG), rig_hash(session.scenario)
    clearance.signed_before({caution: str(signature) for caution, signature in of_rig(*stored).items()})
    try:
        yield
    finally:
        try:
            add(*stored, clearance.signed_cautions, session.record.operator, plain.now())
        except ConfigError as error:
            tell([str(error)])
