# SPDX-License-Identifier: Apache-2.0
"""Signatures for cautions about a rig: once as long as the rig stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from messages import naming

from rths_nodes.app.procedure import signatures
from rths_nodes.core.errors import ConfigError

LONG = "port.silence = 10 s: port.longest_wait is 5 s"
OTHER = "port.silence = 20 s: port.longest_wait is 5 s"


def test_a_signature_holds_for_the_rig_it_was_given_for(tmp_path: Path) -> None:
    rig = tmp_path / "bench.yaml"
    assert signatures.of_rig(rig, "c0ffee") == {}
    signatures.add(rig, "c0ffee", {LONG: {}}, "A. Müller", "2026-06-01")
    signatures.add(rig, "c0ffee", {LONG: {}, OTHER: {}}, "B. Tester", "2026-06-02")
    assert {words: str(each) for words, each in signatures.of_rig(rig, "c0ffee").items()} == {
        LONG: "by A. Müller on 2026-06-01",
        OTHER: "by B. Tester on 2026-06-02",
    }
    assert signatures.of_rig(rig, "another") == {}
    signatures.add(rig, "another", {OTHER: {}}, "B. Tester", "2026-06-03")
    assert list(signatures.of_rig(rig, "another")) == [OTHER]


def test_nothing_signed_writes_nothing(tmp_path: Path) -> None:
    signatures.add(tmp_path / "bench.yaml", "c0ffee", {}, "A. Müller", "2026-06-01")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bench.signed.yaml").write_text("version: 1\nrig_hash: 3\n")
    with pytest.raises(ConfigError, match=r"bench\.signed\.yaml"):
        signatures.of_rig(tmp_path / "bench.yaml", "c0ffee")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming("signatures", "written")):
        signatures.add(tmp_path / "gone" / "bench.yaml", "c0ffee", {LONG: {}}, "A. Müller", "2026-06-01")
