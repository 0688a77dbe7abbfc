# SPDX-License-Identifier: Apache-2.0
"""Scenarios: the strict YAML, overrides, what is shared by the nodes, and no exception but ConfigError."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doubts import doubts
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import each_mentions, mentions, naming

from rths_nodes.core import yaml_text
from rths_nodes.core.checks import TestContext
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.yaml_text import dump, parse
from rths_nodes.loop.embedded import Loop, checked_loop
from rths_nodes.loop.scenario import assembly, files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import from_text, load
from rths_nodes.loop.scenario.overrides import override, replace, with_case
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.mechanics.models.file import LoadingModel, save
from rths_nodes.recording.run import Collector

PAPER = load("chen_ricles_2010")
SINE = load("predefined_sine")


def refusal(*overrides: str, base: Scenario = PAPER) -> str:
    with pytest.raises(ConfigError) as caught:
        override(base, overrides)
    assert all("\n" not in problem for problem in caught.value.problems)
    return str(caught.value)


def refused(call: Callable[[], Any]) -> str:
    """The message of a ConfigError, empty without one; any other exception goes up."""
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
def test_numbers_are_numbers(text: str, value: float) -> None:
    found = parse(text, "x")
    assert found == value
    assert type(found) is type(value)


def test_each_reader_of_a_text_has_data_of_its_own() -> None:
    first = parse("a: [1, 2]", "x")
    first["a"].append(3)
    assert parse("a: [1, 2]", "x") == {"a": [1, 2]}


@pytest.mark.parametrize(
    "text",
    [
        "e3",
        "1e",
        "7.6e6 N",
        "v1e3",
        "1.2.3",
        "1:30",
        "12:30:45",
        "1_000",
        "yes",
        "on",
        "2024-01-01",
        "0b11",
        "１２",
    ],
)
def test_other_text_stays_text(text: str) -> None:
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
    ids=lambda words: words[:20],
)
def test_bad_yaml_is_one_line_with_file_and_line(text: str, message: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "file")
    assert mentions(str(caught.value), *message)
    assert "\n" not in str(caught.value)


def with_plain_loader(text: str) -> object:
    """The data of ``text``, or the words that refuse it, by PyYAML's own scanner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml_text, "_QUICK", yaml_text._Loader)
        return told(text)


def told(text: str) -> object:
    try:
        return repr(parse(text, "file"))
    except ConfigError as error:
        return str(error)


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
def test_libyaml_reads_nothing_else_than_the_scanner_of_pyyaml(text: str) -> None:
    assert told(text) == with_plain_loader(text)


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
        ("x" * (5 << 20), ("file", "5242880", "<= 4 MiB")),
    ],
    ids=["bomb", "ladder", "long", "large"],
)
def test_what_is_small_but_stands_for_much_is_refused_and_costs_nothing(
    text: str, message: tuple[str, ...]
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError) as caught:
            parse(text, "file")
        assert mentions(str(caught.value), *message)
        assert len(str(caught.value)) < 200
        assert tracemalloc.get_traced_memory()[1] < 10e6
    finally:
        tracemalloc.stop()


def test_an_alias_bomb_is_refused_in_set() -> None:
    flow = "{" + ", ".join(BOMB.strip().splitlines()) + "}"
    assert mentions(refusal(f"axes={flow}"), "--set", "axes", "line 1")


def test_more_values_than_a_scenario_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_text, "MOST_NODES", 2_000)  # of 200 000, which take seconds to read
    assert "more than 2000 values" in refused(lambda: parse("[" + "1," * 2_100 + "]", "file"))


def test_an_alias_is_what_it_stands_for() -> None:
    text = "a: &a {x: 1, y: [2, 3]}\nb: *a\nc: {<<: *a, x: 4}"
    assert parse(text, "file") == {
        "a": {"x": 1, "y": [2, 3]},
        "b": {"x": 1, "y": [2, 3]},
        "c": {"x": 4, "y": [2, 3]},
    }


@given(
    st.recursive(
        st.text(max_size=12) | st.sampled_from(["010", "08", "1e3", "0o7", "yes", "1:30", "~", "<<"]),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    )
)
def test_text_comes_back_as_text(data: Any) -> None:
    assert parse(dump({"a": data}), "file") == {"a": data}


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**30), 10**30))
def test_numbers_come_back_to_the_bit(number: float, whole: int) -> None:
    found = parse(dump([number, whole]), "file")
    assert [repr(entry) for entry in found] == [repr(number), repr(whole)]


@given(st.text(max_size=40))
def test_any_text_is_data_or_refused(text: str) -> None:
    assert "\n" not in refused(lambda: parse(text, "file"))


# Reading


@pytest.mark.parametrize("source", ["", "- 1", "text", "3"])
def test_a_scenario_is_a_mapping(source: str) -> None:
    with pytest.raises(ConfigError, match=naming("x.yaml", "mapping", "section")):
        from_text(source, "x.yaml")


def test_data_and_yaml_come_back_to_the_bit() -> None:
    awkward = override(PAPER, ["structure.mass=0.30000000000000004", "servo_rate=1023.9999999999999"])
    assert from_text(dump(awkward.data()), "x") == awkward
    assert awkward.structure.mass == 0.1 + 0.2


def test_files_are_relative_to_the_scenario(tmp_path: Path) -> None:
    data = PAPER.data() | {"ground_motion": {"type": "record", "file": "motion.txt", "step": 0.01, "unit": "g"}}
    (tmp_path / "mine.yaml").write_text(dump(data))
    assert load(tmp_path / "mine.yaml").ground_motion.file == str(tmp_path / "motion.txt")


def test_the_home_directory_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/some/home")
    assert override(PAPER, ["ground_motion.file=~/motion.txt"]).ground_motion.file == "/some/home/motion.txt"


def test_scenarios_are_found_by_name_or_path() -> None:
    known = files.shipped()
    assert load(known["predefined_sine"]) == load("predefined_sine")
    with pytest.raises(ConfigError, match=r"unknown scenario 'chen_ricles' .*known: chen_ricles_2010, "):
        load("chen_ricles")
    with pytest.raises(ConfigError, match=naming("mine.yaml", "file")):
        load("mine.yaml")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\x80\x81\x00\xff")
    with pytest.raises(ConfigError, match=naming("binary.yaml", "read")):
        load(tmp_path / "binary.yaml")


# Time


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
def test_duration_is_rounded_up_to_whole_steps(overrides: list[str], steps: int, samples: int) -> None:
    changed = override(PAPER, overrides)
    assert (changed.steps, changed.samples) == (steps, samples)
    assert changed.step == pytest.approx(changed.substeps * changed.dt)


# Overrides


def test_an_override_changes_one_value() -> None:
    changed = override(PAPER, ["axes.story_1.actuator.alpha=31"])
    assert changed.axes["story_1"].actuator.alpha == 31.0
    assert override(changed, ["axes.story_1.actuator.alpha=29.0"]) == PAPER
    assert override(PAPER, []) is PAPER


def test_another_type_has_its_own_defaults_whatever_the_order() -> None:
    words = ["axes.story_1.actuator.gain=40", "axes.story_1.actuator.type=servo_hydraulic"]
    for order in (words, words[::-1]):
        actuator = override(PAPER, order).axes["story_1"].actuator
        assert type(actuator).type_name == "servo_hydraulic"
        assert (actuator.gain, actuator.max_force) == (40.0, 1.7e6)


def test_the_same_type_keeps_its_values() -> None:
    assert override(PAPER, ["compensator.type=adaptive_inverse"]) == PAPER


def test_an_optional_section_can_be_made_and_left_out() -> None:
    changed = override(PAPER, ["structure.restoring_force=null"])
    assert changed.structure.restoring_force is None
    words = ["structure.restoring_force.stiffness=1e6", "structure.restoring_force.type=linear"]
    assert override(changed, words).structure.restoring_force.stiffness == 1e6


def test_a_file_drops_the_record_and_its_scale(tmp_path: Path) -> None:
    words = ["ground_motion.unit=g", f"ground_motion.file={tmp_path}/a=b.txt", "ground_motion.step=0.01"]
    motion = override(PAPER, words).ground_motion
    assert (motion.record, motion.file, motion.scale) == (None, f"{tmp_path}/a=b.txt", 1.0)
    assert (motion.unit, motion.step) == ("g", 0.01)


def test_later_overrides_win() -> None:
    assert override(PAPER, ["seed=3", "seed=4"]).seed == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nonsense", ("--set", "section.key")),
        ("=3", ("section.key", "value")),
        ("a..b=3", ("section.key", "value")),
        ("struture.mass=3", ("struture", "unknown", "structure")),
        ("structure.mas=3", ("structure.mas", "mas", "unknown", "mass", "damping_ratio")),
        ("axes.story_2.actuator.alpha=3", ("axes.story_2", "story_2", "unknown")),
        ("seed.x=3", ("seed", "1", "seed.x")),
        ("structure.mass=heavy", ("structure.mass", "heavy")),
        ("structure.mass=[1", ("--set", "structure.mass", "line 1", "YAML")),
        ("compensator.type=none_such", ("compensator.type", "unknown", "none_such")),
        ("name=../x", ("name", "../x", "_ . -")),
        ("axes.story_1.limits=null", ("axes.story_1.limits.stroke", "missing")),
        ("version=2", ("version", "2", ">= 1", "<= 1")),
    ],
)
def test_an_override_that_does_not_fit_is_refused(words: str, message: tuple[str, ...]) -> None:
    assert mentions(refusal(words), *message)


def test_more_samples_than_a_message_can_number_are_refused() -> None:
    message = refusal("servo_rate=1e5", "duration=86400")
    assert mentions(message, "servo_rate", "8640000000", "<= 4294967295")


def test_more_memory_than_a_machine_has_is_refused_when_it_is_built() -> None:
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
    place=st.integers(0, 1000),
    value=st.one_of(
        st.floats().map(repr),
        st.integers().map(str),
        st.sampled_from(
            [".nan", "-.inf", "null", "true", "{}", "[]", "{type: none}", "1:30", "0x1F", "!!set {a}"]
        ),
        st.text(max_size=8),
    ),
)
def test_any_override_gives_a_loop_or_config_error(base: Scenario, place: int, value: str) -> None:
    keys = leaves(base.data())

    def attempt() -> None:
        built = override(base, ["duration=0.1", f"{keys[place % len(keys)]}={value}"])
        if built.samples < 100_000:
            Loop(Assembly(built))

    # a section that was left out may lack several keys
    assert "\n" not in refused(attempt) or value in ("{}", "{type: none}")


# What the nodes share


@pytest.mark.parametrize(
    "words",
    ["servo_rate=1000", "seed=2", "duration=2", "axes.story_1.limits.force=1e6", "port.transport_samples=1"],
)
def test_the_hash_covers_what_the_nodes_share(words: str) -> None:
    assert override(PAPER, [words]).shared_hash() != PAPER.shared_hash()


def test_the_hash_leaves_the_rest_to_its_owner_and_tells_runs_apart() -> None:
    assert override(PAPER, ["compensator.alpha_es=20"]).shared_hash() == PAPER.shared_hash()
    assert PAPER.shared_hash("a") != PAPER.shared_hash("b")


def test_states_are_named_by_axis() -> None:
    assert Assembly(PAPER).names.state == (
        "axes.story_1.alpha",
        "axes.story_1.delta_alpha",
        "axes.story_1.tracking_indicator",
    )


def test_without_a_structure_the_axes_are_the_degrees_of_freedom() -> None:
    assert Assembly(SINE).names.model == ("axis_1",)
    assert Assembly(PAPER).names.model == ("x",)
    assert not Assembly(SINE).external_force.any()


def test_a_run_id_names_the_scenario_and_is_a_file_name():
    run_id = files.load("chen_ricles_2010").run_id()
    assert run_id.startswith("chen_ricles_2010_")
    assert Path(run_id).name == run_id


# Cases, cautions, spans


WITH_CASES = {
    "slow": {"set": {"compensator.alpha_es": 45, "duration": 2}, "published": {"max_error_mm": 1.61}},
    "typo": {"set": {"compensator.alpha": 45}},
}


def test_a_case_is_the_scenario_with_its_values() -> None:
    loaded = replace(files.load("chen_ricles_2010"), [(["cases"], WITH_CASES)])
    case = with_case(loaded, "slow")
    assert case.name == "chen_ricles_2010.slow"
    assert case.compensator.alpha_es == 45.0
    assert case.duration == 2.0
    assert not case.cases
    assert loaded.cases["slow"].published == {"max_error_mm": 1.61}
    assert files.from_text(yaml_text.dump(loaded.data()), "again") == loaded


def test_an_unknown_case_and_a_case_that_does_not_fit_are_refused() -> None:
    loaded = replace(files.load("chen_ricles_2010"), [(["cases"], WITH_CASES)])
    with pytest.raises(ConfigError, match=naming("unknown", "slwo", "slow", "typo")):
        with_case(loaded, "slwo")
    with pytest.raises(ConfigError, match=r"cases.typo: compensator.alpha: unknown key"):
        with_case(loaded, "typo")


def test_a_published_value_must_be_a_number() -> None:
    with pytest.raises(ConfigError, match=naming("cases.a.published.J2", "small")):
        replace(files.load("predefined_sine"), [(["cases"], {"a": {"published": {"J2": "small"}}})])


def test_a_component_may_ask_for_history_and_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = files.load("predefined_sine")
    cls = type(loaded.compensator)
    monkeypatch.setattr(cls, "spans", lambda self: {"window": 30.0}, raising=False)
    with pytest.raises(ConfigError, match=naming("compensator.window", "30 s", "<= duration", "20 s")):
        files.load("predefined_sine")
    monkeypatch.setattr(cls, "spans", lambda self: {"window": 20.0})
    monkeypatch.setattr(cls, "cautions", lambda self, test: [f"too wild for {test.axes[0]}"], raising=False)
    assert each_mentions(doubts(files.load("predefined_sine")), ("compensator", "axis_1"))


NARROW = {
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
"""Place of a component -> section with which it is built."""


@pytest.mark.parametrize("place", NARROW)
def test_every_component_may_refuse_its_test(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    part: Any = PAPER
    for key in place.split("."):
        part = part[key] if isinstance(part, dict) else getattr(part, key)

    def fits(self: Any, test: TestContext) -> None:
        raise ConfigError(f"width = 3 m: must be <= {test.velocity_limit or 0:g} m", "depth = 1 m: must be 2 m")

    monkeypatch.setattr(type(part), "fits", fits, raising=False)
    with pytest.raises(ConfigError) as caught:
        checked_loop(PAPER)
    limit = PAPER.axes["story_1"].limits.velocity if place.startswith("axes") else 0
    assert each_mentions(
        caught.value.problems, (f"{place}.width", "3 m", f"<= {limit:g} m"), (f"{place}.depth", "1 m", "2 m")
    )


def test_a_part_of_a_chain_may_refuse_its_test(tmp_path: Path) -> None:
    model = tmp_path / "model.yaml"
    save(LoadingModel(("other",), np.eye(4, 1)[:, :, None], None, 1024.0), model)
    inner = f"{{type: chain, first: {{type: none}}, second: {{type: model_based, model: {model}}}}}"
    change = f"compensator={{type: chain, first: {{type: none}}, second: {inner}}}"
    with pytest.raises(ConfigError) as caught:
        checked_loop(override(PAPER, [change]))
    assert mentions(str(caught.value), "compensator.second.second.model", model, "axes", "story_1")


def test_a_matrix_may_stand_in_a_csv_file_beside_the_scenario(tmp_path: Path) -> None:
    """Its numbers are what is kept and recorded, so that a recording needs no file."""
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
