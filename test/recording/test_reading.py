# SPDX-License-Identifier: Apache-2.0
"""Recordings are read by what stands in them: other layouts, components that are not installed, names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from messages import mentions, naming

import rths_nodes
from rths_nodes.analysis.report.document import render
from rths_nodes.app import hosts
from rths_nodes.core import registry
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.wire import layout, plain
from rths_nodes.core.wire.plain import decode
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.recording import bag
from rths_nodes.recording.run import Run

Changed = Callable[[Callable[[bag.Bag], dict[str, Any]]], Run]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> hosts.RunResult:
    return hosts.run("chen_ricles_2010", ["duration=1"], record=tmp_path_factory.mktemp("recorded") / "run")


@pytest.fixture
def changed(done: hosts.RunResult, monkeypatch: pytest.MonkeyPatch) -> Changed:
    """Reads the recording with what a function of it changes in it."""
    assert done.recording is not None
    original = bag.read(done.recording)

    def read(change: Callable[[bag.Bag], dict[str, Any]]) -> Run:
        monkeypatch.setattr(bag, "read", lambda path: attrs.evolve(original, **change(original)))
        return rths_nodes.read(done.recording)

    return read


def with_scenario(old: str, new: str) -> Callable[[bag.Bag], dict[str, Any]]:
    def change(recording: bag.Bag) -> dict[str, Any]:
        text = recording.information["scenario"]
        assert old in text
        return {"information": recording.information | {"scenario": text.replace(old, new)}}

    return change


def assert_same(run: Run, other: Run | None) -> None:
    assert other is not None
    for name, values in other.arrays().items():
        np.testing.assert_array_equal(getattr(run, name), values, err_msg=name, strict=True)
    assert (run.dof_names, run.compensator_names) == (other.dof_names, other.compensator_names)


def test_what_is_read_is_what_was_run(done: hosts.RunResult) -> None:
    assert done.recording is not None
    run = rths_nodes.read(done.recording)
    assert_same(run, done.run)
    assert run.dof_names == ("x",)
    assert run.metrics == done.metrics


def test_a_finished_test_without_measurements_is_refused(changed: Changed) -> None:
    """Its topic was remapped, for instance."""

    def remapped(recording: bag.Bag) -> dict[str, Any]:
        return {"topics": {name.replace("/measurement", "/strain"): row for name, row in recording.topics.items()}}

    with pytest.raises(ConfigError, match=naming("measurement", "remapped")):
        changed(remapped)


def test_nothing_is_built(done: hosts.RunResult, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(family: str, built: Any) -> None:
        raise AssertionError(f"builds {family}")

    monkeypatch.setattr(registry, "class_of", refuse)
    assert done.recording is not None
    assert_same(rths_nodes.read(done.recording), done.run)


@pytest.mark.parametrize(
    ("family", "kind"), [("compensator", "adaptive_inverse"), ("structure", "sdof"), ("specimen", "kelvin_voigt")]
)
def test_a_component_that_is_not_installed_keeps_its_parameters(
    family: str, kind: str, done: hosts.RunResult, changed: Changed
) -> None:
    run = changed(with_scenario(f"type: {kind}", "type: of_another_lab"))
    assert_same(run, done.run)
    data = run.scenario.data()
    params = data["axes"]["story_1"]["specimen"] if family == "specimen" else data[family]
    before = done.scenario.data()
    was = before["axes"]["story_1"]["specimen"] if family == "specimen" else before[family]
    assert params == was | {"type": "of_another_lab"}
    with pytest.raises(ConfigError, match=naming(family, "of_another_lab")):
        registry.class_of(
            family,
            run.scenario.axes["story_1"].specimen if family == "specimen" else getattr(run.scenario, family),
        )


def test_a_component_that_refuses_its_parameters_is_kept_too(done: hosts.RunResult, changed: Changed) -> None:
    run = changed(with_scenario("alpha_es:", "alpha_of_another_version:"))
    assert_same(run, done.run)
    with pytest.raises(ConfigError, match="unknown key 'alpha_of_another_version'"):
        _ = Assembly(run.scenario).compensator


def test_a_report_leaves_out_what_needs_it_and_says_so(changed: Changed) -> None:
    page = render(changed(with_scenario("type: sdof", "type: of_another_lab")))
    left_out = ("partition", "peak", "HSEM", "energy", "equilibrium", "response", "spectrum")
    assert mentions(page, "Left out", *left_out, "of_another_lab")
    assert page.count("<h3>") == 10
    whole = render(changed(with_scenario("type: adaptive_inverse", "type: of_another_lab")))
    of = "of the compensator&#39;s quantities"
    assert mentions(whole, f"units {of}", f"limits {of}")
    assert whole.count("<h3>") == 16


def test_the_layout_is_that_of_the_file(done: hosts.RunResult, changed: Changed) -> None:
    """Fields under other names are other fields."""

    def renamed(recording: bag.Bag) -> dict[str, Any]:
        definitions = dict(recording.definitions)
        (topic,) = (name for name in definitions if name.endswith("/target"))
        definitions[topic] = definitions[topic].replace("] velocity ", "] pace ")
        return {"definitions": definitions}

    run = changed(renamed)
    assert done.run is not None
    np.testing.assert_array_equal(run.dof_displacement, done.run.dof_displacement)
    assert run.dof_velocity.shape == done.run.dof_velocity.shape
    assert np.isnan(run.dof_velocity).all()


def test_a_message_of_another_layout_is_told(changed: Changed) -> None:
    def torn(recording: bag.Bag) -> dict[str, Any]:
        definitions = dict(recording.definitions)
        (topic,) = (name for name in definitions if name.endswith("/target"))
        definitions[topic] = "uint32 step\n"
        return {"definitions": definitions}

    with pytest.raises(ConfigError, match=naming("/rths/target", "8 bytes")):
        changed(torn)


def test_a_recording_of_something_else_is_refused(changed: Changed, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=naming("scenario")):
        changed(lambda recording: {"information": {}})
    with pytest.raises(ConfigError, match=naming("mapping", "sections")):
        changed(lambda recording: {"information": {"scenario": "3"}})


STAMP = "builtin_interfaces/Time stamp\n"
VERSION_1 = {
    "Target": STAMP
    + "uint32 step\nuint32 flags\nfloat64[<=64] displacement\nfloat64[<=64] velocity\nfloat64[<=64] acceleration\n"
    "float64[<=64] exact_acceleration\nfloat64[<=64] external_force\nfloat64[<=64] restoring_force\n"
    "float64[<=16] auxiliary\n",
    "Command": STAMP
    + "uint32 sample\nuint32 flags\nuint8[<=16] control_mode\nfloat64[<=16] target\nfloat64[<=16] command\n"
    "float64[<=16] auxiliary\n",
    "Measurement": STAMP
    + "uint32 sample\nuint32 flags\nuint8[<=16] control_mode\nfloat64[<=16] displacement\nfloat64[<=16] force\n"
    "float64[<=16] command\nfloat64[<=64] auxiliary\n",
    "CompensatorState": STAMP + "uint32 sample\nuint32 flags\nfloat64[<=512] values\n",
    "NodeStatus": STAMP
    + "string node\nbool ready\nstring problem\nstring scenario_hash\nstring parameters\nstring[] state_names\n"
    "string version\n",
    "Summary": STAMP + "string node\nuint32 sample\nstring[] names\nfloat64[] values\n",
    "TestState": STAMP
    + "uint8 state\nuint32 sample\nstring reason\nstring scenario\nstring scenario_hash\nstring run_id\n"
    "float64 servo_rate\nuint32 substeps\nuint32 samples\nuint32 transport_samples\nstring[] axis_names\n"
    "string[] degree_of_freedom_names\nstring[] auxiliary_names\n",
}
"""The messages before they had a header."""


VERSION_2 = {kind: layout.definition(kind).replace("string run ", "# ") for kind in (*VERSION_1, "SyncStatus")}
"""The messages with the mark of the run in the ``frame_id`` of their headers."""


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2], ids=["1", "2"])
def test_a_recording_of_an_earlier_version_of_the_messages_is_read(
    version: dict[str, str], done: hosts.RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert done.recording is not None
    new = bag.read(done.recording)
    kinds = {name: topic.type.rpartition("/")[2] for name, topic in new.topics.items()}
    old = [(name, decode(kinds[name], data), stamp) for name, data, stamp in new.messages()]
    monkeypatch.setattr(bag, "definition", lambda kind: version[kind.rpartition("/")[2]])
    monkeypatch.setattr(plain, "described", lambda message: layout.fields_of(version[message]))
    topics = [topic for topic in new.topics.values() if topic.type.rpartition("/")[2] in version]
    writer = bag.Writer(tmp_path / "old", topics, new.information)
    for name, values, stamp in old:
        data = plain.encode(kinds[name], values | {"frame_id": values["run"]})
        writer.write(name, data, stamp)
    writer.close({})
    monkeypatch.undo()
    found = rths_nodes.read(tmp_path / "old")
    assert_same(found, done.run or rths_nodes.read(done.recording))
    assert (found.metrics, found.information) == (rths_nodes.read(done.recording).metrics, new.information)
