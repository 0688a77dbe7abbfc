# SPDX-License-Identifier: Apache-2.0
"""Files of FMUs: what is damaged, lies or leads out of its folder is refused in words, and nothing is written."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fmus import changed, frame, rogue, skip_without_fmi
from messages import mentions, naming

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.fmu import archive, description
from rths_nodes.core.fmu.description import Description, Variable, described, description_of
from rths_nodes.core.inputs import named_files
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.schema import Scenario

SCENARIO = """
version: 1
name: frame
servo_rate: 1000.0
substeps: 5
duration: 1.0
{more}
integrator:
  type: fmu
  file: {file}
  interface: {{story_1: {{displacement: {x}, force: {f}}}}}
  {integrator}
compensator: {{type: none}}
axes:
  story_1:
    actuator: {{type: pure_delay}}
    specimen: {{type: kelvin_voigt, stiffness: 4.0e+5, damping: 0.0}}
    limits: {{stroke: 0.5, velocity: 10.0, force: 1.0e+6}}
"""


@pytest.fixture(autouse=True)
def _fmi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without_fmi()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


def refused(file: Path, integrator: str = "", more: str = "", x: str = "x1", f: str = "f1") -> str:
    """Words with which a scenario that names ``file`` is refused; nothing of it stays on the disk."""
    folder = file.parent
    text = SCENARIO.format(file=file, integrator=integrator, more=more, x=x, f=f)
    before = set(folder.rglob("*"))
    with pytest.raises(ConfigError) as refusal:
        _ = Assembly(files.from_text(text, "frame.yaml", folder)).integrator
    assert set(folder.rglob("*")) == before
    return str(refusal.value)


# -- archives -------------------------------------------------------------------------------------------------


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("resources/zeros", bytes(archive.LARGEST_UNPACKED // 64))
    data = path.read_bytes()
    # the directory says of each of many members that it is as large; here one says it of itself
    place = data.rindex(b"resources/zeros") - 22
    path.write_bytes(data[:place] + (archive.LARGEST_UNPACKED + 1).to_bytes(4, "little") + data[place + 4 :])


def zeros(path: Path) -> None:
    """A hole of 128 MiB, which takes 128 KiB in the archive."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("resources/zeros", bytes(128 << 20))


def many(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as opened:
        for number in range(archive.MOST_MEMBERS):
            opened.writestr(f"resources/{number}", b"")


def encrypted(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        for found in re.finditer(re.escape(mark), bytes(data)):
            data[found.start() + offset] |= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def wrong_sum(path: Path) -> None:
    data = bytearray(path.read_bytes())
    place = bytes(data).index(b"modelDescription.xml") + 40
    data[place] ^= 0xFF
    path.write_bytes(data)


def with_member(name: str) -> Callable[[Path], None]:
    def add(path: Path) -> None:
        with zipfile.ZipFile(path, "a") as opened:
            opened.writestr(name, b"mine")

    return add


def without_description(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("other.xml", b"")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (bomb, ("<= 1 GiB", "<= 100")),
        (zeros, ("128 MiB", "<= 1 GiB", "above 64 MiB, <= 100 times")),
        (many, ("members", "<= 20000")),
        (encrypted, ("encrypted", "password")),
        (cut, ("unpacked", "zip")),
        (wrong_sum, ("cannot", "unpacked")),
        (without_description, ("FMU", "modelDescription.xml")),
        (with_member("../outside"), ("member", "../outside")),
        (with_member("resources/../../outside"), ("folder", "archive")),
        (with_member("/tmp/outside"), ("folder", "archive")),
        (with_member("resources\\..\\outside"), ("folder", "archive")),
        (with_member("C:/outside"), ("folder", "archive")),
        (with_member("resources//outside"), ("folder", "archive")),
    ],
)
def test_an_archive_that_must_not_be_unpacked_is_refused(
    damage: Callable[[Path], None], says: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "frame.fmu"
    shutil.copy(frame(3), file)
    damage(file)
    words = refused(file)
    assert words.startswith(f"integrator.file = '{file}'"[:50]), words
    assert mentions(words, *says)


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    """Readers do not agree which of them counts."""
    with pytest.warns(UserWarning, match="Duplicate name"):
        file = changed(frame(3), tmp_path / "frame.fmu", more={"modelDescription.xml": b"<other/>"})
    assert mentions(refused(file), "members", "name")


def test_a_bomb_that_hides_its_size_is_not_unpacked_beyond_it(tmp_path: Path) -> None:
    """The directory says ten bytes, the member has a million: no more than the ten are written."""
    file = changed(frame(3), tmp_path / "frame.fmu", more={"resources/zeros": bytes(1_000_000)})
    data = file.read_bytes()
    place = data.rindex(b"resources/zeros") - 22
    file.write_bytes(data[:place] + (10).to_bytes(4, "little") + data[place + 4 :])
    folder = tmp_path / "unpacked"
    folder.mkdir()
    with pytest.raises(ConfigError, match=naming("cannot", "unpacked")):
        archive.Archive(str(file)).unpack(folder, "binaries/linux64")
    assert sum(path.stat().st_size for path in (folder / "resources").iterdir()) <= 10


def test_a_link_in_the_archive_is_written_as_its_text(tmp_path: Path) -> None:
    file, link = tmp_path / "frame.fmu", zipfile.ZipInfo("resources/link")
    shutil.copy(frame(3), file)
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(file, "a") as opened:
        opened.writestr(link, "/etc/passwd")
    folder = tmp_path / "unpacked"
    folder.mkdir()
    archive.Archive(str(file)).unpack(folder, "binaries/linux64")
    assert not (folder / "resources/link").is_symlink()
    assert (folder / "resources/link").read_text() == "/etc/passwd"


def test_only_what_a_process_needs_is_unpacked(tmp_path: Path) -> None:
    more = {"sources/frame.c": b"", "binaries/win64/frame.dll": b"", "resources/table.txt": b"1"}
    file, folder = changed(frame(3), tmp_path / "frame.fmu", more=more), tmp_path / "unpacked"
    folder.mkdir()
    archive.Archive(str(file)).unpack(folder, "binaries/linux64")
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {"modelDescription.xml", "binaries/linux64/frame.so", "resources/table.txt"}


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.fmu").mkdir()
    assert mentions(refused(tmp_path / "folder.fmu"), "directory", "file")
    assert mentions(refused(tmp_path / "none.fmu"), "No such file")
    os.mkfifo(tmp_path / "pipe.fmu")
    assert mentions(refused(tmp_path / "pipe.fmu"), "regular", "file")


VARIABLE_STEP = ' canHandleVariableCommunicationStepSize="true"'

# -- descriptions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([("<fmiModel", "<!DOCTYPE a [<!ENTITY b 'c'>]><fmiModel")], ("document", "type")),
        ([("</fmiModelDescription>", "")], ("modelDescription.xml", "FMI")),
        ([('fmiVersion="2.0"', 'fmiVersion="1.0"')], ("modelDescription.xml", "FMI")),
        ([('fmiVersion="2.0"', 'fmiVersion="4.0"')], ("FMI", "4.0")),
        ([("CoSimulation ", "ModelExchange "), (VARIABLE_STEP, "")], ("FMI", "2.0")),
        ([('modelIdentifier="frame"', 'modelIdentifier="../frame"')], ("identifier",)),
        ([('modelIdentifier="frame"', 'modelIdentifier="other"')], ("binaries/linux64/other.so",)),
        ([('causality="output"', 'causality="outlet"')], ("modelDescription.xml", "FMI")),
    ],
)  # fmt: skip
def test_a_description_that_lies_or_is_none_is_refused(
    pairs: list[tuple[str, str]], says: tuple[str, ...], tmp_path: Path
) -> None:
    assert mentions(refused(changed(frame(3), tmp_path / "frame.fmu", *pairs)), *says)


def test_a_missing_binary_is_told_with_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "frame.fmu"
    with zipfile.ZipFile(frame(3)) as old, zipfile.ZipFile(file, "w") as new:
        new.writestr("modelDescription.xml", old.read("modelDescription.xml"))
        new.writestr("binaries/win64/frame.dll", b"")
        new.writestr("sources/frame.c", b"")
    words = refused(file)
    assert mentions(words, "binaries/linux64/frame.so", "binaries/win64")
    assert mentions(words, "sources", "compile")


def test_a_large_description_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LARGEST_DESCRIPTION", 1000)
    shutil.copy(frame(3), tmp_path / "frame.fmu")
    assert "must be <= 1000 bytes" in refused(tmp_path / "frame.fmu")


# -- variables and units --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"x": "x9"}, ("integrator.interface.story_1.displacement", "x9", "unknown", "a1")),
        ({"x": "k1"}, ("k1", "FMU", "x1", "x2", "x3")),
        ({"x": "f1"}, ("f1", "FMU")),
        ({"f": "x2"}, ("force", "x2", "FMU")),
        ({"x": "v1"}, ("m/s", "1 m s^-1")),
        ({"f": "ground_acceleration"}, ("m/s^2", "1 m s^-2")),
        ({"integrator": "parameters: {k9: 1.0}"}, ("integrator.parameters", "unknown", "k9", "alpha")),
        ({"integrator": "parameters: {x1: 1.0}"}, ("integrator.parameters", "unknown", "x1")),
        ({"integrator": "parameters: {k1: true}"}, ("parameters.k1", "True", "Real")),
        ({"integrator": "parameters: {k1: stiff}"}, ("parameters.k1", "stiff")),
        ({"integrator": "parameters: {k1: .nan}"}, ("parameters.k1", "nan", "number")),
        ({"integrator": "parameters: {k1: .inf}"}, ("parameters.k1", "inf")),
        ({"integrator": "units: {x1: mm}"}, ("units.x1", "mm", "m", "FMU")),
        ({"integrator": "units: {x7: mm}"}, ("units.x7", "mm", "f1", "x1")),
        (
            {"more": "ground_motion: {type: sine, amplitude: 1.0, frequency: 1.0}"},
            ("integrator.ground", "missing"),
        ),
        ({"integrator": "ground: {acceleration: ground_acceleration}"}, ("scenario", "ground_motion")),
        ({"more": "structure: {type: sdof, mass: 1.0, frequency: 1.0}"}, ("structure", "left")),
        ({"more": "observed: [roof]"}, ("integrator.observed", "test")),
        (
            {"integrator": "observed: {roof: {displacement: x1}}", "more": "observed: [roof]"},
            ("x1", "FMU", "interface.story_1.displacement", "observed.roof.displacement"),
        ),
    ],
)  # fmt: skip
def test_what_the_fmu_does_not_have_so_is_refused(
    given: dict[str, str], says: tuple[str, ...], tmp_path: Path
) -> None:
    shutil.copy(frame(3), tmp_path / "frame.fmu")
    assert mentions(refused(tmp_path / "frame.fmu", **given), *says)


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        # a unit whose definition is not that of its name
        ([('<BaseUnit m="1"/>', '<BaseUnit m="1" factor="0.001"/>')], ("m", "0.001 m", "1 m")),
        ([('<BaseUnit m="1"/>', '<BaseUnit m="2"/>')], ("m", "1 m^2")),
        ([('<BaseUnit m="1"/>', '<BaseUnit m="1" offset="1"/>')], ("1 m", "1", "unit")),
        ([('<BaseUnit m="1"/>', ""), ('"m"', '"furlong"')], ("furlong", "define")),
        ([('"m"', '"furlong"'), ('<BaseUnit m="1"/>', '<BaseUnit m="1" factor="-1"/>')], ("-1 m", "> 0")),
        ([(' unit="m"', "")], ("units", "x1", "m", "mm")),
    ],
)
def test_a_unit_that_is_wrong_or_unknown_is_refused(
    pairs: list[tuple[str, str]], says: tuple[str, ...], tmp_path: Path
) -> None:
    assert mentions(refused(changed(frame(3), tmp_path / "frame.fmu", *pairs)), *says)


def test_a_unit_of_its_own_is_taken_by_its_definition(tmp_path: Path) -> None:
    pairs = [('"m"', '"furlong"'), ('<BaseUnit m="1"/>', '<BaseUnit m="1" factor="201.168"/>')]
    file = changed(frame(3), tmp_path / "frame.fmu", *pairs)
    text = SCENARIO.format(file=file, integrator="", more="", x="x1", f="f1")
    loaded: Any = files.from_text(text, "frame.yaml", tmp_path)
    _, outputs = loaded.integrator.feeds()
    assert outputs.factors.tolist() == [201.168]


@pytest.mark.parametrize("version", [2, 3])
def test_units_may_be_written_in_the_usual_ways(version: int, tmp_path: Path) -> None:
    for name in ("m/s2", "m/s²", "m.s-2", "m s^-2"):
        pairs = [('name="m/s^2"', f'name="{name}"'), ('unit="m/s^2"', f'unit="{name}"'), ('m="1" s="-2"', 'm="1"')]
        file = changed(frame(3, version), tmp_path / "frame.fmu", *pairs[:2], ('<BaseUnit m="1" s="-2"/>', ""))
        text = SCENARIO.format(
            file=file,
            integrator="ground: {acceleration: ground_acceleration}",
            more="ground_motion: {type: sine, amplitude: 1.0, frequency: 1.0}",
            x="x1",
            f="f1",
        )
        assert Assembly(files.from_text(text, "frame.yaml", tmp_path)).integrator is not None


# -- the package and the copy ---------------------------------------------------------------------------------


def test_without_fmpy_the_refusal_says_how_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fmpy", None)
    shutil.copy(frame(3), tmp_path / "frame.fmu")
    words = refused(tmp_path / "frame.fmu")
    assert mentions(words, "FMU", "fmpy")
    assert mentions(words, "pip", "fmpy")
    assert description.INSTALL in words


def test_the_file_is_hashed_and_copied_as_any_other(tmp_path: Path) -> None:
    file = tmp_path / "frame.fmu"
    shutil.copy(frame(3), file)
    data = {"integrator": {"type": "fmu", "file": str(file)}}
    (named,) = named_files(Scenario, data)
    first, copy = named.hash(), Path(named.copy(tmp_path / "inputs"))
    assert copy.read_bytes() == file.read_bytes()
    assert first in str(copy)
    shutil.copy(rogue(), file)
    assert named.hash() != first
    assert described(str(copy)).identifier == "frame"


# -- directories of archives, and whole numbers ---------------------------------------------------------------


@pytest.mark.parametrize("comment", [b"", b"a comment of the archive"])
def test_the_size_of_a_directory_is_that_which_is_read(comment: bytes, tmp_path: Path) -> None:
    file = tmp_path / "frame.fmu"
    shutil.copy(frame(3), file)
    with zipfile.ZipFile(file, "a") as opened:
        opened.comment = comment
        start = opened.start_dir
    data = file.read_bytes()
    assert archive.directory_size(data[-archive.TAIL :]) == data.rindex(b"PK\x05\x06") - start
    assert archive.directory_size(b"") == archive.directory_size(b"PK\x05\x06") == 0


def test_a_directory_that_would_fill_the_memory_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that stands in the records of zip64, as of an archive with 65536 members."""
    monkeypatch.setattr(archive, "LARGEST_DIRECTORY", 1000)
    file = tmp_path / "frame.fmu"
    with zipfile.ZipFile(file, "w") as opened:
        for number in range(65_536):
            opened.writestr(f"{number}", b"")
    monkeypatch.setattr(archive, "MOST_MEMBERS", 1_000_000)
    monkeypatch.delattr("zipfile.ZipFile._RealGetContents")
    words = refused(file)
    assert mentions(words, "directory of")
    assert mentions(words, "MiB", "<= 1000 bytes")


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        ("UInt8", 255, True),
        ("UInt8", 256, False),
        ("UInt8", -1, False),
        ("Int16", -32768, True),
        ("Int16", 40000, False),
        ("Integer", 1 << 31, False),
        ("Enumeration", 3, True),
        ("Int64", 1.5, False),
        ("Boolean", True, True),
        ("Boolean", 1, False),
        ("Float32", 2, True),
    ],
)
def test_a_number_that_its_type_cannot_hold_is_refused(kind: str, value: Any, fits: bool) -> None:
    """The library would keep its last bits, without a word."""
    variable = Variable("n", 1, kind, "parameter", "fixed", None, "0", None, None, False)
    description = Description(3, "", "", "", "", False, False, None, None, {"n": variable})
    if fits:
        assert description.parameter("parameters", "n", value) is variable
    else:
        with pytest.raises(ConfigError, match=r"^parameters\.n = "):
            description.parameter("parameters", "n", value)


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 3000), marks=pytest.mark.soak)])
def test_damage_anywhere_is_refused_in_words_or_harmless(seeds: range, tmp_path: Path) -> None:
    """Whatever bytes of an archive or of a description are others; nothing is written beside the folder."""
    whole, text = frame(3).read_bytes(), archive.Archive(str(frame(3))).description()
    file, folder = tmp_path / "frame.fmu", tmp_path / "unpacked"
    refusals = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        data, words = bytearray(whole), bytearray(text)
        for _ in range(rng.integers(1, 4)):
            place = rng.choice([rng.integers(200), len(data) - 1 - rng.integers(400), rng.integers(len(data))])
            data[place] = rng.integers(256)
            words[rng.integers(len(words))] = rng.choice(list(b'0123456789"<>/ abmMN&;\xff'))
        file.write_bytes(data[: rng.integers(len(data))] if seed % 10 == 0 else data)
        folder.mkdir()
        try:
            described(str(file))
            archive.Archive(str(file)).unpack(folder, "binaries/linux64")
            description_of(bytes(words))
        except ConfigError:
            refusals += 1
        assert {path.name for path in tmp_path.iterdir()} == {"frame.fmu", "unpacked", "tmp"}
        shutil.rmtree(folder)
    assert refusals > 0
