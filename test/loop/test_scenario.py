# SPDX-License-Identifier: Apache-2.0
"""Tests of scenarios: strict YAML, overrides, cases, values shared by the nodes, shipped scenarios."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_parts import simulate
from messages import doubts, each_mentions, mentions, naming

from rths_nodes.core import yaml_text
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.parameters import TestContext
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.loop.embedded import Loop, checked_loop
from rths_nodes.loop.scenario import assembly, files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import from_text, load, override, replace, with_case
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.supervision.states import State
from rths_nodes.mechanics.loading_model import LoadingModel, save
from rths_nodes.recording.run import Collector

PAPER = load("chen_ricles_2010")
SINE = load("predefined_sine")


def refusal(*overrides: str, base: Scenario = PAPER) -> str:
    with pytest.raises(ConfigError) as refused:
        override(base, overrides)
    assert all("\n" not in problem for problem in refused.value.problems)
    return str(refused.value)


def message_of(call: Callable[[], Any]) -> str:
    """Return the message of a ConfigError, or an empty text."""
    try:
        call()
    except ConfigError as error:
        return str(error)
    return ""


# YAML


@pytest.mark.parametrize(
    ("text", "value"),
    [("7.6e6", 7.6e6), ("1e3", 1000.0), ("-.5E-3", -0.0005), ("0o10", 8), ("0x1F", 31), ("3", 3), ("2.50", 2.5)],
)
def test_yaml_numbers(text: str, value: float) -> None:
    result = parse(text, "x")
    assert result == value
    assert type(result) is type(value)


def test_parse_returns_new_data() -> None:
    first = parse("a: [1, 2]", "x")
    first["a"].append(3)
    assert parse("a: [1, 2]", "x") == {"a": [1, 2]}


@pytest.mark.parametrize(
    "text",
    [
        *("e3", "1e", "7.6e6 N", "v1e3", "1.2.3", "1:30", "12:30:45", "1_000"),
        *("yes", "on", "2024-01-01", "0b11", "１２"),
    ],
)
def test_yaml_text_stays_text(text: str) -> None:
    assert parse(text, "x") == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", ("file", "line 3", "a", "twice")),
        ("a: {x: 1, x: 1}", ("file", "line 1", "x", "twice")),
        ("1: a", ("file", "line 1", "1", "text")),
        ("a: [1, 2", ("file", "line 1", "YAML")),
        ("a: 'b", ("not YAML:",)),
        ("a: *b", ("YAML", "alias")),
        ("!!python/object:os.system x", ("YAML", "determine")),
        ("!!bool maybe", ("not YAML:",)),
        ("!!int x", ("YAML", "x")),
        ("!!map x", ("YAML", "tag")),
        ("!!set {a}", ("YAML", "determine")),
        ("010", ("line 1", "010", "0", "10", "YAML", "1.1", "8")),
        ("a: -08", ("line 1", "-08", "0", "-8")),
        ("1e-400", ("line 1", "1e-400", "0")),
        ("-1e400", ("line 1", "-1e400")),
        ("9" * 5000, ("line 1", "YAML", "5000")),
        ("0x" + "f" * 5000, ("line 1", "YAML", "5002")),
        ("&a [*a]", ("line 1", "alias")),
        ("a: &a\n  b: {c: *a}", ("line 2", "alias")),
        ("a\0b", ("not YAML:",)),
        ("[" * 5000, ("line 1", "50")),
        ("- " * 5000 + "x", ("line 1", "50")),
    ],
    ids=lambda text: text[:20],
)
def test_invalid_yaml_is_reported_with_file_and_line(text: str, message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text, "file")
    assert mentions(str(refused.value), *message)
    assert "\n" not in str(refused.value)


@pytest.mark.skipif(yaml_text._QUICK is yaml_text._Loader, reason="PyYAML is without libyaml here")
@given(
    st.lists(
        st.sampled_from(
            ["a", "b", "0.1", "-3e-4", "[", "]", "{", "}", ", ", ": ", "\n", "\n  ", "- ", "'", '"', "#"]
        )
        | st.sampled_from(
            ["&a ", "*a", "!!int ", "|\n ", ">-\n ", "<<", "? ", "%", "@", "\t", "\0", "é", "\x85", "---\n"]
        ),
        max_size=12,
    ).map("".join)
)
@settings(max_examples=300)
def test_libyaml_agrees_with_scanner_of_pyyaml(text: str) -> None:
    def result() -> list[str]:
        parsed: list[str] = []
        return [message_of(lambda: parsed.append(repr(parse(text, "file")))), *parsed]

    expected = result()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_text, "_QUICK", yaml_text._Loader)
        assert result() == expected


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in itertools.pairwise("abcdefghi")
)
LADDER = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [[[[[[*a{n - 1}]]]]]]\n" for n in range(1, 400))
LONG = f"a: &a {'x' * 10_000}\nb: [{', '.join(['*a'] * 1000)}]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, ("file", "line 6", "200000")),
        (LADDER, ("aliases", "50", "levels")),
        (LONG, ("file", "line 2", "4 MiB")),
        ("x" * (5 << 20), ("file", "5242880", "<= 4194304")),
    ],
    ids=["bomb", "ladder", "long", "large"],
)
def test_yaml_that_expands_is_refused_in_bounded_memory(text: str, message: tuple[str, ...]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match=naming(*message)) as refused:
            parse(text, "file")
        assert len(str(refused.value)) < 200
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


def test_alias_bomb_is_refused_in_override() -> None:
    flow = "{" + ", ".join(BOMB.strip().splitlines()) + "}"
    assert mentions(refusal(f"axes={flow}"), "--set", "axes", "line 1")


def test_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "MOST_NODES", 2_000)  # instead of 200 000, which take seconds to read
    assert "more than 2000 values" in message_of(lambda: parse("[" + "1," * 2_100 + "]", "file"))


def test_aliases_are_expanded() -> None:
    text = "a: &a {x: 1, y: [2, 3]}\nb: *a\nc: {<<: *a, x: 4}"
    section = {"x": 1, "y": [2, 3]}
    assert parse(text, "file") == {"a": section, "b": section, "c": section | {"x": 4}}


@given(
    st.recursive(
        st.text(max_size=12) | st.sampled_from(["010", "08", "1e3", "0o7", "yes", "1:30", "~", "<<"]),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    )
)
def test_text_round_trip(data: Any) -> None:
    assert parse(dump({"a": data}), "file") == {"a": data}


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**30), 10**30))
def test_number_round_trip(number: float, integer: int) -> None:
    result = parse(dump([number, integer]), "file")
    assert [repr(entry) for entry in result] == [repr(number), repr(integer)]


@given(st.text(max_size=40))
def test_random_text_is_parsed_or_refused(text: str) -> None:
    assert "\n" not in message_of(lambda: parse(text, "file"))


# Files


@pytest.mark.parametrize("source", ["", "- 1", "text", "3"])
def test_scenario_must_be_mapping(source: str) -> None:
    with pytest.raises(ConfigError, match=naming("x.yaml", "mapping", "section")):
        from_text(source, "x.yaml")


def test_scenario_round_trip() -> None:
    awkward = override(PAPER, ["structure.mass=0.30000000000000004", "servo_rate=1023.9999999999999"])
    assert from_text(dump(awkward.data()), "x") == awkward
    assert awkward.structure.mass == 0.1 + 0.2


def test_files_are_relative_to_scenario(tmp_path: Path) -> None:
    data = PAPER.data() | {"ground_motion": {"type": "record", "file": "motion.txt", "step": 0.01, "unit": "g"}}
    (tmp_path / "mine.yaml").write_text(dump(data))
    assert load(tmp_path / "mine.yaml").ground_motion.file == str(tmp_path / "motion.txt")


def test_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/some/home")
    assert override(PAPER, ["ground_motion.file=~/motion.txt"]).ground_motion.file == "/some/home/motion.txt"


def test_scenarios_are_found_by_name_or_path() -> None:
    assert load(files.shipped()["predefined_sine"]) == load("predefined_sine")
    with pytest.raises(ConfigError, match=r"unknown scenario 'chen_ricles' .*known: chen_ricles_2010, "):
        load("chen_ricles")
    with pytest.raises(ConfigError, match=naming("mine.yaml", "file")):
        load("mine.yaml")


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\x80\x81\x00\xff")
    with pytest.raises(ConfigError, match=naming("binary.yaml", "read")):
        load(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("overrides", "steps", "samples"),
    [
        (["duration=30"], 3072, 30720),
        (["duration=0.1"], 11, 110),
        (["duration=1e-9"], 1, 10),
        (["duration=1", "servo_rate=1000", "substeps=10"], 100, 1000),
        (["duration=0.3", "servo_rate=100", "substeps=1"], 30, 30),
    ],
)
def test_duration_is_rounded_up_to_steps(overrides: list[str], steps: int, samples: int) -> None:
    changed = override(PAPER, overrides)
    assert (changed.steps, changed.samples) == (steps, samples)
    assert changed.step == pytest.approx(changed.substeps * changed.dt)


# Overrides


def test_override_changes_one_value() -> None:
    changed = override(PAPER, ["axes.story_1.actuator.alpha=31"])
    assert changed.axes["story_1"].actuator.alpha == 31.0
    assert override(changed, ["axes.story_1.actuator.alpha=29.0"]) == PAPER
    assert override(PAPER, []) is PAPER
    assert override(PAPER, ["seed=3", "seed=4"]).seed == 4


def test_override_of_type_uses_its_defaults() -> None:
    overrides = ["axes.story_1.actuator.gain=40", "axes.story_1.actuator.type=servo_hydraulic"]
    for order in (overrides, overrides[::-1]):
        actuator = override(PAPER, order).axes["story_1"].actuator
        assert type(actuator).type_name == "servo_hydraulic"
        assert (actuator.gain, actuator.max_force) == (40.0, 1.7e6)
    assert override(PAPER, ["compensator.type=adaptive_inverse"]) == PAPER, "the same type"


def test_optional_section_can_be_removed_and_added() -> None:
    changed = override(PAPER, ["structure.restoring_force=null"])
    assert changed.structure.restoring_force is None
    overrides = ["structure.restoring_force.stiffness=1e6", "structure.restoring_force.type=linear"]
    assert override(changed, overrides).structure.restoring_force.stiffness == 1e6


def test_ground_motion_file_replaces_record_and_scale(tmp_path: Path) -> None:
    overrides = ["ground_motion.unit=g", f"ground_motion.file={tmp_path}/a=b.txt", "ground_motion.step=0.01"]
    motion = override(PAPER, overrides).ground_motion
    assert (motion.record, motion.file, motion.scale) == (None, f"{tmp_path}/a=b.txt", 1.0)
    assert (motion.unit, motion.step) == ("g", 0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nonsense", ("--set", "section.key")),
        ("=3", ("section.key", "value")),
        ("a..b=3", ("section.key", "value")),
        ("struture.mass=3", ("struture", "unknown", "structure")),
        ("structure.mas=3", ("structure.mas", "mas", "unknown", "mass", "damping_ratio")),
        ("seed.x=3", ("seed", "1", "seed.x")),
        ("name=../x", ("name", "../x", "_ . -")),
        ("version=2", ("version", "2", ">= 1", "<= 1")),
    ],
)
def test_invalid_override_is_refused(change: str, message: tuple[str, ...]) -> None:
    assert mentions(refusal(change), *message)


def test_too_many_samples_are_refused() -> None:
    assert mentions(refusal("servo_rate=1e5", "duration=86400"), "servo_rate", "8640000000", "<= 4294967295")


def test_too_much_memory_is_refused() -> None:
    planned = override(PAPER, ["servo_rate=40000", "duration=86400", "substeps=1"])
    with pytest.raises(ConfigError, match=r"^duration \* servo_rate = 3456000000 samples .* must be <= 4 GiB$"):
        Loop(Assembly(planned))
    day = override(PAPER, ["duration=86400"])
    assembly.check_memory(day, 1)
    with pytest.raises(ConfigError, match=naming("GiB", "<= 4 GiB")):
        Collector(day, Assembly(PAPER).names)


def leaves(data: Any, path: str = "") -> list[str]:
    if not isinstance(data, dict):
        return [path]
    return [leaf for key, value in data.items() for leaf in leaves(value, f"{path}.{key}" if path else key)]


@settings(max_examples=300)
@given(
    base=st.sampled_from([PAPER, SINE]),
    index=st.integers(0, 1000),
    value=st.one_of(
        st.floats().map(repr),
        st.integers().map(str),
        st.sampled_from(
            [".nan", "-.inf", "null", "true", "{}", "[]", "{type: none}", "1:30", "0x1F", "!!set {a}"]
        ),
        st.text(max_size=8),
    ),
)
def test_random_override_gives_loop_or_config_error(base: Scenario, index: int, value: str) -> None:
    keys = leaves(base.data())

    def attempt() -> None:
        built = override(base, ["duration=0.1", f"{keys[index % len(keys)]}={value}"])
        if built.samples < 100_000:
            Loop(Assembly(built))

    # an empty section may lack several keys
    assert "\n" not in message_of(attempt) or value in ("{}", "{type: none}")


# Values shared by the nodes


@pytest.mark.parametrize(
    "change",
    ["servo_rate=1000", "seed=2", "duration=2", "axes.story_1.limits.force=1e6", "port.transport_samples=1"],
)
def test_hash_depends_on_shared_values(change: str) -> None:
    assert override(PAPER, [change]).shared_hash() != PAPER.shared_hash()


def test_hash_ignores_other_values_and_depends_on_run() -> None:
    assert override(PAPER, ["compensator.alpha_es=20"]).shared_hash() == PAPER.shared_hash()
    assert PAPER.shared_hash("a") != PAPER.shared_hash("b")


def test_states_are_named_by_axis() -> None:
    assert Assembly(PAPER).names.state == (
        "axes.story_1.alpha",
        "axes.story_1.delta_alpha",
        "axes.story_1.tracking_indicator",
    )


def test_axes_are_dofs_without_structure() -> None:
    assert Assembly(SINE).names.model == ("axis_1",)
    assert Assembly(PAPER).names.model == ("x",)
    assert not Assembly(SINE).external_force.any()


def test_run_id_is_file_name_with_scenario() -> None:
    run_id = PAPER.run_id()
    assert run_id.startswith("chen_ricles_2010_")
    assert Path(run_id).name == run_id


# Cases, cautions, spans


WITH_CASES = {
    "slow": {"set": {"compensator.alpha_es": 45, "duration": 2}, "published": {"max_error_mm": 1.61}},
    "typo": {"set": {"compensator.alpha": 45}},
}


def test_case_changes_scenario() -> None:
    loaded = replace(PAPER, [(["cases"], WITH_CASES)])
    case = with_case(loaded, "slow")
    assert (case.name, case.compensator.alpha_es, case.duration) == ("chen_ricles_2010.slow", 45.0, 2.0)
    assert not case.cases
    assert loaded.cases["slow"].published == {"max_error_mm": 1.61}
    assert from_text(dump(loaded.data()), "again") == loaded


def test_unknown_and_invalid_cases_are_refused() -> None:
    loaded = replace(PAPER, [(["cases"], WITH_CASES)])
    with pytest.raises(ConfigError, match=naming("unknown", "slwo", "slow", "typo")):
        with_case(loaded, "slwo")
    with pytest.raises(ConfigError, match=r"cases.typo: compensator.alpha: unknown key"):
        with_case(loaded, "typo")


def test_published_value_must_be_number() -> None:
    with pytest.raises(ConfigError, match=naming("cases.a.published.J2", "small")):
        replace(SINE, [(["cases"], {"a": {"published": {"J2": "small"}}})])


def test_spans_and_cautions_of_component(monkeypatch: pytest.MonkeyPatch) -> None:
    cls = type(SINE.compensator)
    monkeypatch.setattr(cls, "spans", lambda self: {"window": 30.0}, raising=False)
    with pytest.raises(ConfigError, match=naming("compensator.window", "30 s", "<= duration", "20 s")):
        load("predefined_sine")
    monkeypatch.setattr(cls, "spans", lambda self: {"window": 20.0})
    monkeypatch.setattr(cls, "cautions", lambda self, test: [f"too wild for {test.axes[0]}"], raising=False)
    assert each_mentions(doubts(load("predefined_sine")), ("compensator", "axis_1"))


SECTIONS = {
    "ground_motion": "ground_motion",
    "structure.restoring_force": "structure",
    "integrator": "integrator",
    "ramp": "ramp",
    "setup": "setup",
    "compensator": "compensator",
    "port": "port",
    "axes.story_1.actuator": "axes",
    "axes.story_1.specimen": "axes",
}
"""Path of a component -> section with which it is built."""


@pytest.mark.parametrize("path", SECTIONS)
def test_every_component_can_refuse_test(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part: Any = PAPER
    for key in path.split("."):
        part = part[key] if isinstance(part, dict) else getattr(part, key)

    def fits(self: Any, test: TestContext) -> None:
        raise ConfigError(f"width = 3 m: must be <= {test.velocity_limit or 0:g} m", "depth = 1 m: must be 2 m")

    monkeypatch.setattr(type(part), "fits", fits, raising=False)
    with pytest.raises(ConfigError) as refused:
        checked_loop(PAPER)
    limit = PAPER.axes["story_1"].limits.velocity if path.startswith("axes") else 0
    assert each_mentions(
        refused.value.problems, (f"{path}.width", "3 m", f"<= {limit:g} m"), (f"{path}.depth", "1 m", "2 m")
    )


def test_component_of_chain_can_refuse_test(tmp_path: Path) -> None:
    model = tmp_path / "model.yaml"
    save(LoadingModel(("other",), np.eye(4, 1)[:, :, None], None, 1024.0), model)
    inner = f"{{type: chain, first: {{type: none}}, second: {{type: model_based, model: {model}}}}}"
    change = f"compensator={{type: chain, first: {{type: none}}, second: {inner}}}"
    with pytest.raises(ConfigError, match=naming("compensator.second.second.model", model, "axes", "story_1")):
        checked_loop(override(PAPER, [change]))


def test_matrix_in_csv_file(tmp_path: Path) -> None:
    """The numbers are stored and recorded, so a recording does not need the file."""
    text = files.locate("phillips_spencer_2012").read_text()
    assert "experimental_mass: &specimen_mass [[98.3, 0.0, 0.0], [0.0, 98.3, 0.0], [0.0, 0.0, 98.3]]" in text
    (tmp_path / "mass.csv").write_text("# kg\n983, 0, 0\n0, 983.0, 0\n\n0, 0, 9.83e2\n")
    rows = "[[983.0, 0.0, 0.0], [0.0, 983.0, 0.0], [0.0, 0.0, 983.0]]"
    assert rows in text
    (tmp_path / "frame.yaml").write_text(text.replace(rows, "mass.csv"))
    assert load(tmp_path / "frame.yaml").data() == load("phillips_spencer_2012").data()
    (tmp_path / "mass.csv").write_text("983, 0, 0\n0, x, 0\n")
    with pytest.raises(ConfigError, match=naming("structure.mass", "table", "0")):
        load(tmp_path / "frame.yaml")


# Shipped scenarios

SHIPPED = files.shipped()
AFTER_REST = {"rths_benchmark_2020": "duration=7"}
"""Scenarios whose record begins with seconds of rest."""


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenario_has_name_description_and_sources(name: str) -> None:
    loaded = load(name)
    assert loaded.name == name
    assert loaded.description
    assert SHIPPED[name].read_text().startswith("#"), "a comment on the sources"


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenario_finishes_with_finite_values(name: str) -> None:
    outcome, run = simulate(name, AFTER_REST.get(name, "duration=3"))
    assert (outcome.state, outcome.reason) == (State.FINISHED, "")
    assert outcome.samples == run.scenario.samples
    for histories in (run.target, run.command, run.displacement, run.force, run.dof_displacement, run.compensator):
        assert np.isfinite(histories).all()
    assert np.abs(run.displacement).max() > 0.0
    for row in outcome.metrics["axes"].values():
        assert np.isfinite(list(row.values())).all()


def test_demo_displacement_is_that_of_paper() -> None:
    """El Centro replaces the record of the paper, scaled to about 30 mm."""
    outcome, _ = simulate("chen_ricles_2010")
    farthest = max(abs(outcome.metrics[f"{side}_displacement_m"]) for side in ("max", "min"))
    assert farthest == pytest.approx(0.030, abs=0.002)
    assert outcome.metrics["axes"]["story_1"]["max_error_percent"] < 10.0
