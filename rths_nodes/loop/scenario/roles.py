# SPDX-License-Identifier: Apache-2.0
"""The section ``roles`` of a rig file: two people, each with a key, of whom the full test needs both.

A key is a passphrase. The rig file has its hash by scrypt (RFC 7914) alone: from that nobody gets it back but by
guessing, which the cost and the least length make long. Both hashes have one salt: two equal keys are seen.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import unicodedata

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.parameters import params, section, text, texts

OPERATOR, RESPONSIBLE = ROLES = ("operator", "responsible")
SHORTEST_KEY = 12
"""Characters of a passphrase."""
_SALT_BYTES, _HASH_BYTES = 16, 32
_N, _R, _P = 1 << 14, 8, 5
"""Cost of a guess: 16 MiB and some 0.2 s; OWASP Password Storage Cheat Sheet, the row for 16 MiB."""


def new_salt() -> str:
    """A salt for the keys of one rig, drawn at random."""
    return secrets.token_hex(_SALT_BYTES)


def hashed(key: str, salt: str) -> str:
    """The hash of a passphrase, as hexadecimal digits; the same however its accents were typed."""
    data = unicodedata.normalize("NFC", key).encode(errors="surrogatepass")
    return hashlib.scrypt(data, salt=bytes.fromhex(salt), n=_N, r=_R, p=_P, dklen=_HASH_BYTES).hex()


@params
class Role:
    """One role: who has it, and the key by which they are known."""

    names: tuple[str, ...] = texts("who may sign in this role")
    key: str = text("hash of its key, as rths roles prints it")

    def validate(self, path: str) -> None:
        """Refuses a role without a name, and a hash that is none."""
        if not self.names or not all(name.strip() for name in self.names):
            raise ConfigError(
                f"{path}.names = {show(list(self.names))}: must be at least one name, none of them empty"
            )
        _check_digits(self.key, _HASH_BYTES, f"{path}.key")


@params
class Roles:
    """Two roles: rungs that load the specimen in full, and signatures, need the consents of both."""

    salt: str = text("drawn with the keys, as rths roles prints it")
    operator: Role = section(Role, "who does the test")
    responsible: Role = section(Role, "who answers for rig and specimen, and is somebody else")

    def validate(self, path: str) -> None:
        """Refuses two roles with one key, or with one person in both."""
        _check_digits(self.salt, _SALT_BYTES, f"{path}.salt")
        if self.operator.key == self.responsible.key:
            raise ConfigError(f"{path}: {OPERATOR} and {RESPONSIBLE} have the same key; each needs one of its own")
        both = {_plain(name) for name in self.operator.names} & {_plain(name) for name in self.responsible.names}
        if both:
            raise ConfigError(f"{path}: {show(min(both))} is both {OPERATOR} and {RESPONSIBLE}: two people sign")

    def of(self, role: str) -> Role:
        """Return the role of that name."""
        return {OPERATOR: self.operator, RESPONSIBLE: self.responsible}[role]

    def owner_of(self, key: str) -> str:
        """Return the role whose key is ``key``, in a time that does not tell how near it was; empty: none."""
        given = hashed(key, self.salt)
        return next((role for role in ROLES if hmac.compare_digest(given, self.of(role).key)), "")

    def __str__(self) -> str:
        return " and ".join(f"{role} ({', '.join(self.of(role).names)})" for role in ROLES)


def _plain(name: str) -> str:
    return " ".join(unicodedata.normalize("NFC", name).casefold().split())


def _check_digits(given: str, count: int, path: str) -> None:
    """Raises ConfigError without what was ``given``: it may be a key, which does not belong into a file."""
    if not re.fullmatch(f"[0-9a-f]{{{2 * count}}}", given):
        raise ConfigError(f"{path}: must be {2 * count} hexadecimal digits, as rths roles prints them")
