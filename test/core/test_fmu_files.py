# SPDX-License-Identifier: Apache-2.0
"""Tests of FMU files: damaged, malicious or unsuitable archives and descriptions are refused."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fmus import changed, frame, rogue, skip_without_fmi
from messages import mentions, naming

from rths_nodes.core import fmu
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.fmu import Description, described, description_of
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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A copy of the FMU of a frame."""
    return Path(shutil.copy(frame(3), tmp_path / "frame.fmu"))


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked"
    folder.mkdir()
    return folder


def load(file: Path, integrator: str = "", more: str = "", x: str = "x1", f: str = "f1") -> Any:
    text = SCENARIO.format(file=file, integrator=integrator, more=more, x=x, f=f)
    return files.from_text(text, "frame.yaml", file.parent)


def refusal(file: Path, **changes: str) -> str:
    """Return the reason for which a scenario with ``file`` is refused; it must leave no new file."""
    before = set(file.parent.rglob("*"))
    with pytest.raises(ConfigError) as refused:
        _ = Assembly(load(file, **changes)).integrator
    assert set(file.parent.rglob("*")) == before
    return str(refused.value)


def bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("resources/zeros", bytes(fmu.LARGEST_UNPACKED // 64))
    declare_size(path, fmu.LARGEST_UNPACKED + 1)  # one member in place of many


def declare_size(path: Path, size: int) -> None:
    """Overwrite the unpacked size of ``resources/zeros`` in the directory of an archive."""
    data = path.read_bytes()
    start = data.rindex(b"resources/zeros") - 22
    path.write_bytes(data[:start] + size.to_bytes(4, "little") + data[start + 4 :])


def zeros(path: Path) -> None:
    """128 MiB of zeros, compressed to 128 KiB."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("resources/zeros", bytes(128 << 20))


def many(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as opened:
        for number in range(fmu.MOST_MEMBERS):
            opened.writestr(f"resources/{number}", b"")


def encrypted(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        for match in re.finditer(re.escape(mark), bytes(data)):
            data[match.start() + offset] |= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def wrong_sum(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[data.index(b"modelDescription.xml") + 40] ^= 0xFF
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
    ("damage", "parts"),
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
def test_dangerous_archive_is_refused(damage: Callable[[Path], None], parts: tuple[str, ...], file: Path) -> None:
    damage(file)
    reason = refusal(file)
    assert reason.startswith(f"integrator.file = '{file}'"[:50]), reason
    assert mentions(reason, *parts)


def test_duplicate_members_are_refused(tmp_path: Path) -> None:
    """Readers disagree on the valid one."""
    with pytest.warns(UserWarning, match="Duplicate name"):
        file = changed(frame(3), tmp_path / "frame.fmu", more={"modelDescription.xml": b"<other/>"})
    assert mentions(refusal(file), "members", "name")


def test_member_is_unpacked_only_to_its_declared_size(tmp_path: Path, unpacked: Path) -> None:
    """10 bytes are declared; the member has a million."""
    file = changed(frame(3), tmp_path / "frame.fmu", more={"resources/zeros": bytes(1_000_000)})
    declare_size(file, 10)
    with pytest.raises(ConfigError, match=naming("cannot", "unpacked")):
        fmu.unpack(str(file), unpacked, "binaries/linux64")
    assert sum(path.stat().st_size for path in (unpacked / "resources").iterdir()) <= 10


def test_symbolic_link_is_unpacked_as_text(file: Path, unpacked: Path) -> None:
    link = zipfile.ZipInfo("resources/link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(file, "a") as opened:
        opened.writestr(link, "/etc/passwd")
    fmu.unpack(str(file), unpacked, "binaries/linux64")
    assert not (unpacked / "resources/link").is_symlink()
    assert (unpacked / "resources/link").read_text() == "/etc/passwd"


def test_only_required_members_are_unpacked(tmp_path: Path, unpacked: Path) -> None:
    more = {"sources/frame.c": b"", "binaries/win64/frame.dll": b"", "resources/table.txt": b"1"}
    fmu.unpack(str(changed(frame(3), tmp_path / "frame.fmu", more=more)), unpacked, "binaries/linux64")
    members = {str(path.relative_to(unpacked)) for path in unpacked.rglob("*") if path.is_file()}
    assert members == {"modelDescription.xml", "binaries/linux64/frame.so", "resources/table.txt"}


def test_missing_or_special_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.fmu").mkdir()
    assert mentions(refusal(tmp_path / "folder.fmu"), "directory", "file")
    assert mentions(refusal(tmp_path / "none.fmu"), "No such file")
    os.mkfifo(tmp_path / "pipe.fmu")
    assert mentions(refusal(tmp_path / "pipe.fmu"), "regular", "file")


VARIABLE_STEP = ' canHandleVariableCommunicationStepSize="true"'


@pytest.mark.parametrize(
    ("pairs", "parts"),
    [
        ([("<fmiModel", "<!DOCTYPE a [<!ENTITY b 'c'>]><fmiModel")], ("document", "type")),
        ([("</fmiModelDescription>", "")], ("modelDescription.xml", "FMI")),
        ([('fmiVersion="2.0"', 'fmiVersion="1.0"')], ("modelDescription.xml", "FMI")),
        ([('fmiVersion="2.0"', 'fmiVersion="4.0"')], ("FMI", "4.0")),
        ([("CoSimulation ", "ModelExchange "), (VARIABLE_STEP, "")], ("FMI", "2.0")),
        ([('modelIdentifier="frame"', 'modelIdentifier="../frame"')], ("identifier",)),
        ([('modelIdentifier="frame"', 'modelIdentifier="other"')], ("binaries/linux64/other.so",)),
        ([('causality="output"', 'causality="outlet"')], ("modelDescription.xml", "FMI")),
        # unknown units, missing units, and units that contradict their names
        ([('<BaseUnit m="1"/>', '<BaseUnit m="1" factor="0.001"/>')], ("m", "0.001 m", "1 m")),
        ([('<BaseUnit m="1"/>', '<BaseUnit m="2"/>')], ("m", "1 m^2")),
        ([('<BaseUnit m="1"/>', '<BaseUnit m="1" offset="1"/>')], ("1 m", "1", "unit")),
        ([('<BaseUnit m="1"/>', ""), ('"m"', '"furlong"')], ("furlong", "define")),
        ([('"m"', '"furlong"'), ('<BaseUnit m="1"/>', '<BaseUnit m="1" factor="-1"/>')], ("-1 m", "> 0")),
        ([(' unit="m"', "")], ("units", "x1", "m", "mm")),
    ],
)  # fmt: skip
def test_invalid_description_is_refused(
    pairs: list[tuple[str, str]], parts: tuple[str, ...], tmp_path: Path
) -> None:
    assert mentions(refusal(changed(frame(3), tmp_path / "frame.fmu", *pairs)), *parts)


def test_missing_binary_is_reported_with_available_ones(file: Path) -> None:
    with zipfile.ZipFile(frame(3)) as old, zipfile.ZipFile(file, "w") as new:
        new.writestr("modelDescription.xml", old.read("modelDescription.xml"))
        new.writestr("binaries/win64/frame.dll", b"")
        new.writestr("sources/frame.c", b"")
    reason = refusal(file)
    assert mentions(reason, "binaries/linux64/frame.so", "binaries/win64", "sources", "compile")


def test_large_description_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fmu, "LARGEST_DESCRIPTION", 1000)
    assert "must be <= 1000 bytes" in refusal(file)


GROUND_MOTION = "ground_motion: {type: sine, amplitude: 1.0, frequency: 1.0}"


@pytest.mark.parametrize(
    ("changes", "parts"),
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
        ({"integrator": "units: {x1: 5}"}, ("units.x1", "5", "unit", "mm")),
        ({"integrator": "units: {x1: [m]}"}, ("units.x1", "unit", "mm")),
        ({"integrator": "units: {x7: mm}"}, ("units.x7", "mm", "f1", "x1")),
        ({"more": GROUND_MOTION}, ("integrator.ground", "missing")),
        ({"integrator": "ground: {acceleration: ground_acceleration}"}, ("scenario", "ground_motion")),
        ({"more": "structure: {type: sdof, mass: 1.0, frequency: 1.0}"}, ("structure", "left")),
        ({"more": "observed: [roof]"}, ("integrator.observed", "test")),
        (
            {"integrator": "observed: {roof: {displacement: x1}}", "more": "observed: [roof]"},
            ("x1", "FMU", "interface.story_1.displacement", "observed.roof.displacement"),
        ),
    ],
)  # fmt: skip
def test_scenario_that_contradicts_fmu_is_refused(
    changes: dict[str, str], parts: tuple[str, ...], file: Path
) -> None:
    assert mentions(refusal(file, **changes), *parts)


def test_unit_defined_by_fmu_is_converted(tmp_path: Path) -> None:
    pairs = [('"m"', '"furlong"'), ('<BaseUnit m="1"/>', '<BaseUnit m="1" factor="201.168"/>')]
    params = load(changed(frame(3), tmp_path / "frame.fmu", *pairs)).integrator
    assert [params.factor(row) for row in params.rows() if row.causality == "output"] == [201.168]


@pytest.mark.parametrize("version", [2, 3])
def test_common_spellings_of_units_are_accepted(version: int, tmp_path: Path) -> None:
    for name in ("m/s2", "m/s²", "m.s-2", "m s^-2"):
        pairs = [('name="m/s^2"', f'name="{name}"'), ('unit="m/s^2"', f'unit="{name}"')]
        file = changed(frame(3, version), tmp_path / "frame.fmu", *pairs, ('<BaseUnit m="1" s="-2"/>', ""))
        scenario = load(file, integrator="ground: {acceleration: ground_acceleration}", more=GROUND_MOTION)
        assert Assembly(scenario).integrator is not None


def test_missing_fmpy_is_reported_with_installation(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fmpy", None)
    reason = refusal(file)
    assert mentions(reason, "FMU", "pip", "fmpy", fmu.INSTALL)


def test_fmu_is_hashed_and_copied(file: Path, tmp_path: Path) -> None:
    (named,) = named_files(Scenario, {"integrator": {"type": "fmu", "file": str(file)}})
    first, copy = named.hash(), Path(named.copy(tmp_path / "inputs"))
    assert copy.read_bytes() == file.read_bytes()
    assert first in str(copy)
    shutil.copy(rogue(), file)
    assert named.hash() != first
    assert described(str(copy)).identifier == "frame"


@pytest.mark.parametrize("comment", [b"", b"a comment of the archive"])
def test_size_of_directory_is_exact(comment: bytes, file: Path) -> None:
    with zipfile.ZipFile(file, "a") as opened:
        opened.comment = comment
        start = opened.start_dir
    data = file.read_bytes()
    assert fmu.directory_size(data[-fmu.TAIL :]) == data.rindex(b"PK\x05\x06") - start
    assert fmu.directory_size(b"") == fmu.directory_size(b"PK\x05\x06") == 0


def test_huge_directory_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """65536 members need the records of zip64."""
    monkeypatch.setattr(fmu, "LARGEST_DIRECTORY", 1000)
    file = tmp_path / "frame.fmu"
    with zipfile.ZipFile(file, "w") as opened:
        for number in range(65_536):
            opened.writestr(f"{number}", b"")
    monkeypatch.setattr(fmu, "MOST_MEMBERS", 1_000_000)
    monkeypatch.delattr("zipfile.ZipFile._RealGetContents")
    reason = refusal(file)
    assert mentions(reason, "directory of", "MiB", "<= 1000 bytes")


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
def test_number_outside_its_type_is_refused(kind: str, value: Any, fits: bool) -> None:
    """The library would silently keep the lowest bits."""
    from fmpy.model_description import CoSimulation, ModelDescription, ScalarVariable

    variable = ScalarVariable("n", 1, kind, causality="parameter", variability="fixed")
    simulation = CoSimulation(modelIdentifier="frame")
    model = ModelDescription(fmiVersion="3.0", coSimulation=simulation, modelVariables=[variable])
    description = Description(model)
    if fits:
        assert description.parameter("parameters", "n", value) is variable
    else:
        with pytest.raises(ConfigError, match=r"^parameters\.n = "):
            description.parameter("parameters", "n", value)


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 3000), marks=pytest.mark.soak)])
def test_random_damage_is_refused_or_harmless(seeds: range, tmp_path: Path) -> None:
    """Random bytes of the archive and the description change; no file outside the folder may be written."""
    original, text = frame(3).read_bytes(), zipfile.ZipFile(frame(3)).read("modelDescription.xml")
    file, folder = tmp_path / "frame.fmu", tmp_path / "unpacked"
    refusals = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        data, changed_text = bytearray(original), bytearray(text)
        for _ in range(rng.integers(1, 4)):
            index = rng.choice([rng.integers(200), len(data) - 1 - rng.integers(400), rng.integers(len(data))])
            data[index] = rng.integers(256)
            changed_text[rng.integers(len(text))] = rng.choice(list(b'0123456789"<>/ abmMN&;\xff'))
        file.write_bytes(data[: rng.integers(len(data))] if seed % 10 == 0 else data)
        folder.mkdir()
        try:
            described(str(file))
            fmu.unpack(str(file), folder, "binaries/linux64")
            description_of(bytes(changed_text))
        except ConfigError:
            refusals += 1
        assert {path.name for path in tmp_path.iterdir()} == {"frame.fmu", "unpacked", "tmp"}
        shutil.rmtree(folder)
    assert refusals > 0
