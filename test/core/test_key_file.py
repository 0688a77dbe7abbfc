# SPDX-License-Identifier: Apache-2.0
"""The key of the operators stands in a file of its owner alone; anything else is refused in words."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from messages import naming

from rths_nodes.core import key_file
from rths_nodes.core.errors import ConfigError


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "deep" / "operator.key"
    key_file.create(path)
    return path


def test_a_key_is_drawn_for_its_owner_alone(key: Path, tmp_path: Path) -> None:
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert len(key_file.read(key)) == key_file.KEY_BYTES
    key_file.create(tmp_path / "other")
    assert key_file.read(tmp_path / "other") != key_file.read(key)


def test_a_key_that_is_there_stays(key: Path) -> None:
    before = key_file.read(key)
    with pytest.raises(FileExistsError):
        key_file.create(key)
    assert key_file.read(key) == before


def test_the_mode_does_not_depend_on_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        key_file.create(tmp_path / "key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o700, 0o4600])
def test_a_key_that_others_may_touch_is_refused(key: Path, mode: int) -> None:
    key.chmod(mode)
    with pytest.raises(ConfigError, match=rf"has mode {mode:04o}, must be 0600"):
        key_file.read(key)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a file away")
def test_a_key_of_somebody_else_is_refused(key: Path) -> None:
    os.chown(key, 65534, -1)
    with pytest.raises(ConfigError, match=naming("user", "65534", "0")):
        key_file.read(key)


def _linked(key: Path) -> None:
    key.rename(key.with_name("true"))
    key.symlink_to("true")


def _piped(key: Path) -> None:
    key.unlink()
    os.mkfifo(key, 0o600)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Path.unlink, ("cannot be read",)),
        (_linked, ("cannot be read",)),
        (_piped, ("regular", "file")),
        (lambda key: key.write_text(""), ("64", "digits")),
        (lambda key: key.write_text("00" * 31), ("64", "digits")),
        (lambda key: key.write_bytes(b"\xff" * 64), ("64", "digits")),
        (lambda key: key.write_text("00" * 3200), ("64", "digits")),
    ],
)
def test_what_is_no_key_is_refused(key: Path, change: Callable[[Path], None], words: tuple[str, ...]) -> None:
    change(key)
    with pytest.raises(ConfigError, match=naming(*words)):
        key_file.read(key)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=naming("cannot be written")):
        key_file.create(tmp_path / "file" / "key")


def test_the_key_stands_in_the_configuration_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/somewhere")
    assert key_file.default_path() == Path("/somewhere/rths_nodes/operator.key")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert key_file.default_path() == Path("/home/ada/.config/rths_nodes/operator.key")
