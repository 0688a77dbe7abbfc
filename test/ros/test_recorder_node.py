# SPDX-License-Identifier: Apache-2.0
"""The recorder node: a recording is complete, or says what is missing, however the test ends."""

from __future__ import annotations

import itertools
import struct

import pytest
import yaml

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.core.data import unflatten
from rths_nodes.core.wire.layout import EMPTY, ENCAPSULATION
from rths_nodes.core.wire.plain import decode
from rths_nodes.loop.options import run_options
from rths_nodes.loop.scenario import files
from rths_nodes.recording import bag

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")

from messages import mentions

from rths_nodes.loop.supervision.states import State
from rths_nodes.ros import names
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.hosting import descriptions as launching
from rths_nodes.ros.hosting.results import Result
from rths_nodes.ros.nodes import recorder as recorder_node

ENDS = (State.FINISHED, State.TRIPPED, State.HELD)
SENT = {  # of a test of three driven samples and one of a safe stop: first number and how many
    "measurement": (0, 5),
    "true_state": (0, 5),
    "target": (0, 2),
    "command": (1, 3),
    "compensator_state": (0, 4),
}
FOUR_SAMPLES = ["duration=0.001", "substeps=4"]
WORDS = {
    "integrator": ("target",),
    "compensator": ("command", "compensator_state"),
    "actuator": ("measurement", "true_state"),
    "monitor": (),
}


@pytest.fixture
def recorder(by_hand):
    with by_hand.node("recorder", overrides=FOUR_SAMPLES) as node:
        yield node


def send(node, topic, *numbers):
    for number in numbers:
        node.topics.inboxes[topic].put(
            ENCAPSULATION + struct.pack("<3I4x", 1, 0, EMPTY) + node.topics.run.field + struct.pack("<I", number)
        )


def send_all(node, but=()):
    """Every message of the test, except the last ones of the streams ``but``."""
    for topic, (first, count) in SENT.items():
        send(node, topic, *range(first, first + count - (topic in but)))


def say_all(by_hand, node, but=()):
    for speaker, topics in WORDS.items():
        if speaker not in but:
            by_hand.put_summary(node, speaker, **{topic: SENT[topic][1] for topic in topics})


def work(node):
    while node.work():
        pass
    return node.phase.gone


def closed(node):
    node.close()
    return node.writer.information


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name.lower())
@pytest.mark.parametrize("late", SENT)
def test_the_last_message_of_every_stream_is_waited_for(by_hand, recorder, end, late):
    send_all(recorder, but=(late,))
    by_hand.put_state(recorder, end, 4)
    say_all(by_hand, recorder)
    assert not work(recorder)
    send(recorder, late, sum(SENT[late]) - 1)
    assert work(recorder)
    about = closed(recorder)
    assert (about["outcome"], about["gaps"], about["samples"]) == (end.name.lower(), "0", "5")
    assert recorder.phase.note == ""


def test_after_the_test_the_file_has_what_was_heard_whenever_the_process_ends(
    by_hand, recorder, tmp_path, monkeypatch
):
    """The middleware may hang while the others leave, and never come back."""
    monkeypatch.setattr(bag, "FLUSH_INTERVAL", 1e9)
    rows = [(full, names.TOPICS[topic]) for topic, full in recorder._full.items()]
    recorder.writer = hosts.open_writer(str(tmp_path / "run"), rows, recorder.information)

    def written():
        counts = bag.read(tmp_path / "run").counts
        return {topic: counts[recorder._full[topic]] for topic in ("measurement", "target")}

    send(recorder, "measurement", 0, 1)
    work(recorder)
    assert written() == {"measurement": 0, "target": 0}, "not due"
    by_hand.put(recorder, "test_state", state=int(State.FINISHED), sample=4)
    recorder.look()
    assert written() == {"measurement": 2, "target": 0}, "as soon as the end is heard"
    send(recorder, "measurement", 2)
    send(recorder, "target", 0)
    assert not work(recorder)
    assert written() == {"measurement": 3, "target": 1}


@pytest.mark.parametrize("silent", WORDS)
def test_the_last_words_of_every_node_are_waited_for(by_hand, recorder, silent):
    send_all(recorder)
    by_hand.put_state(recorder, State.FINISHED, 4)
    say_all(by_hand, recorder, but=(silent,))
    assert not work(recorder)
    by_hand.put_summary(recorder, silent, **{topic: SENT[topic][1] for topic in WORDS[silent]})
    assert work(recorder)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.name.lower())
def test_an_end_that_never_comes_is_counted_and_told(by_hand, recorder, end, monkeypatch):
    monkeypatch.setattr(recorder_node, "SUMMARIES_NS", -1)
    send_all(recorder, but=("target", "command"))
    by_hand.put_state(recorder, end, 4)
    say_all(by_hand, recorder)
    assert work(recorder)
    assert closed(recorder)["gaps"] == "2"
    assert mentions(recorder.phase.note, "complete", "gaps", "1")
    result = Result()
    result.add(recorder.shutdown.summary)
    result.judge([0])
    assert result.notes == [recorder.phase.note]


def test_a_node_that_died_without_last_words_is_named(by_hand, recorder, monkeypatch):
    monkeypatch.setattr(recorder_node, "SUMMARIES_NS", -1)
    send_all(recorder)
    by_hand.put_state(recorder, State.TRIPPED, 4)
    say_all(by_hand, recorder, but=("integrator",))
    assert work(recorder)
    assert mentions(recorder.phase.note, "complete", "integrator")
    about = closed(recorder)
    assert (about["gaps"], about["silent"]) == ("0", "integrator")


def test_a_hole_and_a_missing_end_are_two_gaps(by_hand, recorder, monkeypatch):
    monkeypatch.setattr(recorder_node, "SUMMARIES_NS", -1)
    send(recorder, "measurement", 0, 2, 3)
    by_hand.put_state(recorder, State.FINISHED, 4)
    by_hand.put_summary(recorder, "actuator", measurement=5, true_state=0)
    assert work(recorder)
    assert recorder.gaps["measurement"] == 2


def test_the_end_of_an_actuator_that_does_not_count_is_that_of_the_test(by_hand, recorder):
    send_all(recorder, but=("measurement",))
    by_hand.put_state(recorder, State.FINISHED, 4)
    say_all(by_hand, recorder, but=("actuator",))
    by_hand.put_summary(recorder, "actuator")
    assert not work(recorder)
    assert recorder.gaps["measurement"] == 1
    send(recorder, "measurement", 4)
    assert work(recorder)
    assert closed(recorder)["gaps"] == "0"


def test_who_has_sent_more_since_tells_it_again(by_hand, recorder):
    send_all(recorder)
    by_hand.put_state(recorder, State.TRIPPED, 4)
    say_all(by_hand, recorder)
    by_hand.put_summary(recorder, "compensator", command=4, compensator_state=4)
    assert not work(recorder)
    send(recorder, "command", 4)
    assert work(recorder)


def test_a_test_that_never_began_has_nothing_to_wait_for(by_hand, recorder):
    by_hand.put_state(recorder, State.HELD, 0)
    assert not work(recorder)
    by_hand.put_summary(recorder, "actuator", measurement=0, true_state=0)
    assert work(recorder)
    assert closed(recorder)["gaps"] == "0"


def test_who_is_asked_after_the_end_waits_no_longer(by_hand, recorder, monkeypatch):
    monkeypatch.setattr(recorder_node, "EXIT_NOW_NS", -1)
    send_all(recorder, but=("true_state",))
    by_hand.put_state(recorder, State.FINISHED, 4)
    say_all(by_hand, recorder)
    assert not work(recorder)
    recorder.shutdown.interrupt()
    assert work(recorder)
    assert closed(recorder)["gaps"] == "1"


def test_two_signals_of_one_ctrl_c_are_one_request(by_hand, recorder):
    recorder.shutdown.interrupt()
    send_all(recorder, but=("true_state",))
    by_hand.put_state(recorder, State.HELD, 4)
    recorder.shutdown.interrupt()
    assert not recorder.shutdown.exit_now
    assert not work(recorder)


def test_the_scenario_in_the_recording_is_what_the_nodes_ran_with(by_hand, recorder):
    def status(node, sections, hash_):
        by_hand.put(recorder, "node_status", node=node, scenario_hash=hash_, parameters=sections)

    status("compensator", "compensator: {type: none}", recorder.settings.hash)
    status("monitor", "monitor: {type: nonsense", recorder.settings.hash)
    status("integrator", "integrator: {type: central_difference}", "of another run")
    work(recorder)
    recorder._record_rare()
    data = yaml.safe_load(closed(recorder)["scenario"])
    expected = files.load("chen_ricles_2010", [*FOUR_SAMPLES, "compensator.type=none"]).data()
    assert data == expected


def test_nodes_run_a_case_of_a_scenario(tmp_path):
    case = ("chen_ricles_2010", ["duration=1"])
    descriptions = launching.describe(
        run_options(
            {"scenario": case[0], "overrides": case[1], "case": "alpha_29_k_p_0", "record": tmp_path / "run"}
        )
    )
    assert composed.run(descriptions, hosts.open_writer).exit_code == 0
    run, reference = rths_nodes.read(tmp_path / "run"), files.load(*case, "alpha_29_k_p_0")
    assert run.scenario.data() == reference.data()
    assert (run.displacement == hosts.run(reference).read().displacement).all()


def test_a_node_with_a_compensator_of_its_own_leaves_a_recording_that_can_be_read(tmp_path):
    descriptions = launching.describe(
        run_options({"scenario": "chen_ricles_2010", "overrides": ["duration=1"], "record": tmp_path / "run"})
    )
    for description in descriptions:
        if description.role == "compensator":
            description.parameters["compensator.type"] = "none"  # which has no state
    assert composed.run(descriptions, hosts.open_writer).exit_code == 0
    run = rths_nodes.read(tmp_path / "run")
    reference = rths_nodes.run("chen_ricles_2010", ["duration=1", "compensator.type=none"])
    assert run.scenario.data() == reference.scenario.data()
    assert run.compensator_names == ()
    assert (run.displacement == reference.displacement).all()


@pytest.mark.parametrize(
    ("end", "host"),
    [
        *itertools.product(("finished", "tripped", "held"), ("composed",)),
        *(pytest.param(end, "processes", marks=pytest.mark.soak) for end in ("finished", "tripped", "held")),
    ],
)
def test_what_was_sent_is_what_was_recorded(host, end, tmp_path):
    limit = ["axes.story_1.limits.force=1.0e5"] if end == "tripped" else []
    heard = []
    report = hosts.run(
        "chen_ricles_2010",
        ["duration=10" if end == "held" else "duration=3", *limit],
        host=host,
        record=tmp_path / "run",
        progress=lambda sample, samples: heard.append(sample),
        interrupted=lambda: end == "held" and bool(heard) and heard[-1] > 200,
    )
    assert report.outcome == end
    assert report.notes == []
    recording = bag.read(tmp_path / "run")
    assert (recording.information["gaps"], recording.information["silent"]) == ("0", "")
    sent = {}
    for topic, data, _ in recording.messages():
        if topic == "/rths/summary":
            summary = decode("Summary", data)
            numbers = dict(zip(summary["names"], summary["values"], strict=True))
            sent |= unflatten(numbers, "sent")
    assert set(sent) == set(SENT)
    assert sent == {topic: recording.counts[f"/rths/{topic}"] for topic in SENT}
    reference = rths_nodes.run("chen_ricles_2010", ["duration=10"]).displacement
    run = rths_nodes.read(tmp_path / "run")
    driven = int((run.flags & 8 == 0).sum())
    assert (run.displacement[:driven] == reference[:driven]).all()
