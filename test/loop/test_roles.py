# SPDX-License-Identifier: Apache-2.0
"""Roles of a rig file: two people with keys of their own, of which the file has no more than a hash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from two_people import KEYS, ROLES_OF_BENCH, SALT, TEXT

from rths_nodes.app.cli import main
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.rehearsal import hash_of
from rths_nodes.loop.scenario.roles import ROLES, hashed, new_salt

OF_OPENSSL = "2665eed7317e3156fe8e0afa60028dcdd4209af29844e96399ab75e77cbf1113"
"""``openssl kdf -keylen 32 -kdfopt pass:pleaseletmein -kdfopt hexsalt:536f...0000 -kdfopt n:16384 ... SCRYPT``"""
BENCH = files.locate("bench_simulated", files.RIG).read_text()


def rig_of(folder: Path, roles: str) -> Path:
    path = folder / "bench.yaml"
    path.write_text(BENCH + roles)
    return path


def test_the_hash_is_scrypt_as_its_standard_has_it() -> None:
    """RFC 7914, section 12, has no case of our cost: another program gives this one."""
    assert hashed("pleaseletmein", "536f6469756d43686c6f72696465".ljust(32, "0")) == OF_OPENSSL
    assert hashed("é", SALT) == hashed("e\u0301", SALT), "however the accent was typed"
    assert new_salt() != new_salt()
    assert len(bytes.fromhex(new_salt())) == 16


def test_who_has_a_key_is_known_by_it_and_by_nothing_in_the_file() -> None:
    for role in ROLES:
        assert ROLES_OF_BENCH.owner_of(KEYS[role]) == role
    for known in (SALT, *(ROLES_OF_BENCH.of(role).key for role in ROLES), "", KEYS["operator"].upper()):
        assert ROLES_OF_BENCH.owner_of(known) == ""
    assert not [key for key in KEYS.values() if key in TEXT]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            ROLES_OF_BENCH.responsible.key,
            ROLES_OF_BENCH.operator.key,
            "operator and responsible have the same key",
        ),
        ("R. Sponsible", "a.  tester", r"roles: 'a. tester' is both operator and responsible: two people sign"),
        ("[R. Sponsible]", "[]", r"roles.responsible.names = \[\]: must be at least one name"),
        ("[R. Sponsible]", "[' ']", r"roles.responsible.names = \[' '\]: must be at least one name"),
        (
            ROLES_OF_BENCH.operator.key,
            KEYS["operator"],
            "roles.operator.key: must be 64 hexadecimal digits, as rths roles",
        ),
        ("  responsible:", "  director:", r"roles.director: unknown key 'director'"),
    ],
)
def test_roles_that_are_not_two_people_are_refused_when_the_file_is_read(
    before: str, after: str, words: str, tmp_path: Path
) -> None:
    assert before in TEXT
    rig = rig_of(tmp_path, TEXT.replace(before, after))
    with pytest.raises(ConfigError, match=words):
        files.load_rig(rig)
    with pytest.raises(ConfigError, match=words):
        files.load("chen_ricles_2010", rig=str(rig))


def test_a_test_is_the_same_whoever_has_to_consent_to_it(tmp_path: Path) -> None:
    """The same data to the byte, the same hash: nothing of roles stands in a scenario, or in its recordings."""
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    found = [
        files.load("chen_ricles_2010", rig=str(rig_of(tmp_path / name, text)))
        for name, text in (("with", TEXT), ("without", ""))
    ]
    first, second = (json.dumps(each.data()) for each in found)
    assert first == second
    assert "roles" not in first
    assert hash_of(found[0]) == hash_of(found[1])
    assert files.load_rig(tmp_path / "without" / "bench.yaml").roles is None


def test_a_check_shows_who_has_to_consent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "roles: rung g and signatures need the consents of operator (A. Tester) and responsible (R. Sponsible)"
    for roles, shown in ((TEXT, True), ("", False)):
        assert main(["check", "chen_ricles_2010", "--rig", str(rig_of(tmp_path, roles)), "--set=duration=1"]) == 0
        assert (words in " ".join(capsys.readouterr().out.split())) is shown
