# SPDX-License-Identifier: Apache-2.0
"""Tests of the strict builder of parameters: widening, refusals, tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml
from messages import mentions, naming

from rths_nodes.app.cli import main
from rths_nodes.core.addresses import check_address, check_port
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameter_docs import table
from rths_nodes.core.parameters import (
    component,
    flag,
    integer,
    matrix,
    number,
    params,
    recorded,
    section,
    sections,
    text,
    vector,
)
from rths_nodes.core.validation import from_data, to_data
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.scenario import files


@params
class Inner:
    """An optional section."""

    gain: float = number("gain", default=2.0, at_least=0.0, at_most=5.0)


@params
class Everything:
    """One field of each kind."""

    length: float = number("length", "m", more_than=0.0)
    count: int = integer("how many", "samples", 3, at_least=1, at_most=10)
    kind: str = text("which", "a", ("a", "b"))
    on: bool = flag("whether", False)
    masses: tuple[float, ...] = vector("of the floors", "kg", (1.0,), more_than=0.0)
    rows: Any = matrix("rows", "N/m", None)
    limit: float | None = number("limit", "N", None, more_than=0.0)
    ramp: Any = component("ramp", "a ramp", {"type": "linear"})
    inner: Inner = section(Inner, "a section")
    many: dict[str, Inner] = sections(Inner, "sections")


GOOD: dict[str, Any] = {"length": 1.5, "many": {"x": {}}}


def test_missing_values_have_defaults() -> None:
    built = from_data(Everything, GOOD)
    assert (built.length, built.count, built.kind, built.on, built.limit) == (1.5, 3, "a", False, None)
    assert (built.inner.gain, built.many["x"].gain) == (2.0, 2.0)
    assert type(built.ramp).type_name == "linear"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("length", 2, 2.0),
        ("count", 4.0, 4),
        ("masses", [1, 2.5], (1.0, 2.5)),
        ("rows", [[1, 2], [3, 4]], ((1.0, 2.0), (3.0, 4.0))),
        ("limit", None, None),
        ("inner", None, Inner()),
    ],
)
def test_values_are_widened(key: str, value: Any, expected: Any) -> None:
    built = getattr(from_data(Everything, GOOD | {key: value}), key)
    assert built == expected
    assert type(built) is type(expected)


INVALID: list[tuple[str, Any, str]] = [
    ("length", -1, "top.length = -1 m: must be > 0 m"),
    ("length", 0.0, "top.length = 0 m: must be > 0 m"),
    ("length", float("nan"), "top.length = nan: must be a finite number in m"),
    ("length", float("inf"), "top.length = inf: must be a finite number in m"),
    ("length", 10**400, "must be a finite number in m"),
    ("length", 1e-60, "top.length = 1e-60: must be 0 or have a magnitude between 1e-50 and 1e+50"),
    ("length", "1.5", "top.length = '1.5': must be a number in m"),
    ("length", True, "top.length = True: must be a number in m"),
    ("length", None, "top.length = None: must be a number in m"),
    ("length", [1.0], "top.length = [1.0]: must be a number in m"),
    ("count", 1.5, "top.count = 1.5: must be a whole number of samples"),
    ("count", float("nan"), "top.count = nan: must be a whole number of samples"),
    ("count", float("inf"), "top.count = inf: must be a whole number of samples"),
    ("count", "3", "top.count = '3': must be a whole number of samples"),
    ("count", False, "top.count = False: must be a whole number of samples"),
    ("count", 0, "top.count = 0 samples: must be >= 1 and <= 10 samples"),
    ("count", 11, "top.count = 11 samples: must be >= 1 and <= 10 samples"),
    ("kind", "c", "top.kind: unknown value 'c'; known: a, b"),
    ("kind", 1, "top.kind = 1: must be text"),
    ("on", "yes", "top.on = 'yes': must be true or false"),
    ("on", 1, "top.on = 1: must be true or false"),
    ("masses", [], "top.masses = []: must be a list of numbers in kg"),
    ("masses", 3.0, "top.masses = 3: must be a list of numbers in kg"),
    ("masses", [1.0, -2.0], "top.masses[1] = -2 kg: must be > 0 kg"),
    ("masses", [1.0, "x"], "top.masses[1] = 'x': must be a number in kg"),
    ("rows", 1.0, "top.rows = 1: must be a list of rows"),
    ("rows", [[1.0, 2.0], [3.0]], "top.rows: rows must have equal length, but have (2, 1) numbers"),
    ("rows", [[1.0], ["x"]], "top.rows[1][0] = 'x': must be a number in N/m"),
    ("ramp", 3, "top.ramp = 3: must be a section with one of the types hermite, linear, predictor_corrector, "),
    ("ramp", {}, "top.ramp.type: missing; known: hermite, linear, predictor_corrector, quadratic"),
    ("ramp", {"type": "cubic"}, "top.ramp.type: unknown ramp 'cubic'"),
    ("ramp", {"type": ["linear"]}, "top.ramp.type: unknown ramp ['linear']"),
    ("ramp", {"type": "linear", "x": 1}, "top.ramp.x: unknown key 'x'; known: none"),
    ("inner", 3, "top.inner = 3: must be a section (key: value)"),
    ("inner", {"gian": 1.0}, "top.inner.gian: unknown key 'gian' (did you mean 'gain'?); known: gain"),
    ("inner", {"gain": 9.0}, "top.inner.gain = 9: must be >= 0 and <= 5"),
    ("many", {}, "top.many = {}: must be a mapping of names to sections, at least one"),
    ("many", [1], "top.many = [1]: must be a mapping"),
    ("many", {"a b": {}}, "top.many: the name 'a b' must consist of letters, digits and underscores"),
    ("many", {"a": {"gain": -1}}, "top.many.a.gain = -1: must be >= 0 and <= 5"),
    (
        "lenght",
        1.0,
        "top.lenght: unknown key 'lenght' (did you mean 'length'?); known: count, inner, kind, length",
    ),
]


@pytest.mark.parametrize(
    ("key", "value", "message"), INVALID, ids=[f"{key}-{i}" for i, (key, _, _) in enumerate(INVALID)]
)
def test_invalid_value_is_refused(key: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_data(Everything, GOOD | {key: value}, "top")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_value_is_named_with_meaning_and_unit() -> None:
    with pytest.raises(ConfigError, match=r"^top\.length: missing \(length \[m\]\)$"):
        from_data(Everything, {"many": {"x": {}}}, "top")


def test_undeclared_field_is_refused_by_decorator() -> None:
    with pytest.raises(TypeError, match=naming("Params", "gain", "place")):
        params(type("Params", (), {"__annotations__": {"gain": float, "place": str}, "gain": 2.0, "place": ""}))


def test_built_parameters_are_frozen() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        from_data(Everything, GOOD).length = 2.0


def test_parameters_have_default_methods() -> None:
    @params
    class Short:
        window: float = number("window", "s", 1.0)

        def spans(self) -> dict[str, float]:
            return {"window": self.window}

    installed = from_data(Short, {"window": 2.0})
    missing = recorded("specimen", "old", {"gain": 1.0}, "is not installed here")
    assert installed.spans() == {"window": 2.0}
    assert missing.spans() == {}
    for parameters in (installed, missing):
        parameters.fits(None)
        parameters.validate("")
        assert not any(
            (parameters.cautions(None), parameters.contents(), parameters.reads(), parameters.remarks({}))
        )
        assert parameters.stop_groups(2, 3) == (0, 0, 0)


def test_data_round_trip_preserves_values() -> None:
    built = from_data(Everything, GOOD | {"rows": [[1.0, 2.0]], "limit": 0.1 + 0.2})
    data = to_data(built)
    assert data["ramp"] == {"type": "linear"}
    assert from_data(Everything, data) == built


def test_table_lists_unit_bound_and_default() -> None:
    rows = {row.name: row for row in table(Everything)}
    assert (rows["length"].unit, rows["length"].bound, rows["length"].default) == ("m", "> 0", "required")
    assert (rows["count"].bound, rows["count"].default) == (">= 1 and <= 10", "3")
    assert mentions(rows["kind"].bound, "a", "b")
    assert rows["limit"].default == "-"
    assert (rows["ramp"].kind, rows["ramp"].default) == ("section: ramp", "linear")
    assert rows["inner"].default == "its defaults"


def test_all_problems_are_reported_one_per_line() -> None:
    data = {"lenght": 1.0, "count": 11, "ramp": {"type": "linaer"}}
    with pytest.raises(ConfigError) as refused:
        from_data(Everything, data | {"many": {"x": {"gain": 9.0}, "y": {"gain": -1.0}}})
    keys = [problem.partition(":")[0].partition(" ")[0] for problem in refused.value.problems]
    assert keys == ["lenght", "length", "count", "ramp.type", "many.x.gain", "many.y.gain"]
    assert str(refused.value).splitlines() == list(refused.value.problems)


def test_problems_are_prefixed_with_their_file() -> None:
    assert ConfigError("a = 1: must be 2", "b: missing").within("x.yaml").problems == (
        "x.yaml: a = 1: must be 2",
        "x.yaml: b: missing",
    )


# Addresses and port numbers in files and options

SENT = "bench_udp"
WATCHED = "bench_watched"


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "::1", "fe80::1%eth0", "rig", "rig-2.lab.example.org", "rig.local.", "0.0.0.0", "9.lab", "a_b"],
)
def test_valid_address_is_accepted(address: str) -> None:
    check_address(address, "port.address")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.256", ("0 to 255",)),
        ("127.0.0", ("0 to 255",)),
        ("127.0.0.01", ("leading", "zeros")),
        ("1.2.3.4.5", ("0 to 255",)),
        ("::g", ("IPv6",)),
        ("127.0.0.1:25010", ("port", "key")),
        ("", ("''",)),
        ("rig lab", ("rig lab",)),
        ("-rig", ("hyphen",)),
        ("rig..lab", ("''",)),
        ("a" * 64, ("63",)),
        (".".join(["abcdefgh"] * 40), ("253",)),
    ],
)
def test_invalid_address_is_refused(address: str, reason: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        check_address(address, "port.address")
    assert str(refused.value).startswith("port.address = ")
    assert mentions(str(refused.value), "IP", "address", *reason)


@pytest.mark.parametrize("port", [-1, 65536, 10**9])
def test_port_number_has_bounds(port: int) -> None:
    check_port(0, "--port")
    check_port(65535, "--port")
    with pytest.raises(ConfigError, match=naming(f"--port = {port}", "0 and 65535")):
        check_port(port, "--port")


@pytest.mark.parametrize("keys", [("port",), ("watch", "sensors"), ("watch", "pulse")])
def test_addresses_of_rig_file_are_checked(tmp_path: Path, keys: tuple[str, ...]) -> None:
    data: Any = yaml.safe_load(files.locate(WATCHED, files.RIG).read_text())
    section = data
    for key in keys:
        section = section[key]
    section["address"] = "127.0.0.256"
    path = tmp_path / "rig.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises(ConfigError, match=naming(f"{'.'.join(keys)}.address = '127.0.0.256'", "0 to 255")):
        files.load_rig(path)


def test_address_of_remote_integrator_is_checked() -> None:
    integrator = "integrator={type: remote, address: 127.0.0.256, experimental_stiffness: [[1.0]]}"
    with pytest.raises(ConfigError) as refused:
        files.load("chen_ricles_2010", ["structure=null", "ground_motion=null", integrator])
    assert "integrator.address = '127.0.0.256'" in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["emulate", "chen_ricles_2010", "--rig", SENT, "--address", "127.0.0.256"], "--address = '127.0.0.256'"),
        (["emulate", "chen_ricles_2010", "--rig", WATCHED, "--sensors", "rig lab"], "--sensors = 'rig lab'"),
        (["emulate", "chen_ricles_2010", "--rig", SENT, "--port", "65536"], "--port = 65536"),
        (["page", "--address", "127.0.0.256"], "--address = '127.0.0.256'"),
        (["page", "--port", "65536"], "--port = 65536"),
        (["replay", "nowhere", "--page", "--port", "-2"], "--port = -2"),
    ],
)
def test_address_options_are_checked(arguments: list[str], path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == ExitCode.REFUSED
    assert path in capsys.readouterr().err
