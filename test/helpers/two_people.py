# SPDX-License-Identifier: Apache-2.0
"""Operator and responsible of a bench, with their keys; and the text of its roles for a rig file."""

from __future__ import annotations

from functools import cache
from typing import Any

from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.roles import ROLES, Roles, hashed

SALT = "00112233445566778899aabbccddeeff"
KEYS = {"operator": "correct horse battery", "responsible": "quiet ångström staple"}
NAMES = {"operator": "A. Tester", "responsible": "R. Sponsible"}


@cache
def _section() -> Roles:
    people = {role: {"names": [NAMES[role]], "key": hashed(KEYS[role], SALT)} for role in ROLES}
    return from_data(Roles, {"salt": SALT, **people}, "roles")


ROLES_OF_BENCH = _section()
TEXT = f"roles:\n  salt: {SALT}\n" + "".join(
    f"  {role}: {{names: [{NAMES[role]}], key: {ROLES_OF_BENCH.of(role).key}}}\n" for role in ROLES
)
"""The section of a rig file."""


def consent_to(session: Any, role: str, **to: str) -> str:
    """Somebody with the role and its key consents."""
    return str(session.consent(role, NAMES[role], KEYS[role], **to))
