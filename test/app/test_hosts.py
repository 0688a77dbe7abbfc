# SPDX-License-Identifier: Apache-2.0
"""The hosts: the same stages in one process, over topics, and in processes give the same bits."""

from __future__ import annotations

import itertools
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from absorber import frame, section
from forked import at_a_terminal
from messages import mentions

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.commands import check
from rths_nodes.core import registry
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLIPPED, FLAG_TRIPPED
from rths_nodes.core.wire.plain import decode
from rths_nodes.loop.options import HOSTS, run_options
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.overrides import override, replace
from rths_nodes.mechanics.history import History
from rths_nodes.recording import bag

rclpy = pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
pytestmark = pytest.mark.nodes

SHORT = "duration=1.5"
BRIEF = "duration=0.6"
HARD = (  # everything that could tell hosts apart: noise, transport delay, stiff plant, memory, sawtooth-free ramp
    BRIEF,
    "seed=7",
    "port.transport_samples=2",
    "ramp.type=quadratic",
    "axes.story_1.actuator.type=servo_hydraulic",
    "axes.story_1.specimen.type=softening_elastomeric",
    "axes.story_1.sensors.displacement_noise_rms=1e-5",
    "axes.story_1.sensors.force_noise_rms=100.0",
)
CASES = {
    "hard": ("chen_ricles_2010", HARD),
    "sine": ("predefined_sine", (BRIEF,)),
    "coupled": ("phillips_spencer_2012", ("duration=0.3", "compensator.feedback={}")),
    "coupler": ("two_actuator_coupler", (BRIEF,)),
    "large": ("tall_frame", (BRIEF,)),
    "loaded": (  # all changes of mode, with drift
        "column_under_axial_load",
        (
            "duration=1.2",
            "ground_motion.delay=0.2",
            "ground_motion.motion={type: harmonic, amplitude: 0.5, frequency: 2.0, periods: 2}",
            "axes.load.load={value: 50.0e3, ramp_time: 0.4, held_for: 0.1, held_from: 1.0}",
        ),
    ),
    "hops": (  # and samples of it that only the rig knows
        "chen_ricles_2010",
        (*HARD[:2], "hops.depth=3", "port.transport_samples=1", "axes.story_1.sensors.force_noise_rms=100.0"),
    ),
    "benchmark": ("rths_benchmark_2020", ("duration=0.3", "ground_motion.record=elcentro_1940_ns")),
}


@pytest.mark.parametrize(
    "case",
    [
        "hard",
        "coupled",
        "benchmark",
        "loaded",
        "hops",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("sine", "coupler", "large")),
    ],
)
def test_lockstep_is_the_same_to_the_bit_on_all_hosts_and_twice(case, tmp_path, different):
    name, overrides = CASES[case]
    reference = rths_nodes.run(name, overrides)
    assert reference.outcome == "finished"
    for host in HOSTS:
        for again in range(2 if case == "hard" and host != "processes" else 1):
            report = hosts.run(name, overrides, host=host, record=tmp_path / f"{host}{again}", keep=False)
            assert report.exit_code == 0, report.reason
            assert different(reference, rths_nodes.read(report.recording)) == [], f"{host}, run {again}"
            assert report.metrics == reference.metrics or np.isnan(report.metrics["hsem_percent"])
            assert report.metrics["axes"] == reference.metrics["axes"]


def test_copies_of_the_specimen_learn_the_same_on_all_hosts(tmp_path, different):
    """What was known of them is recorded by the nodes with the bits of the embedded host, and without a gap."""
    overrides = [BRIEF, "axes.story_1.sensors.force_delay=7", "ground_motion.scale=1.0"]
    scenario, plain = frame(*overrides, updating=section()), frame(*overrides)
    reference, without = rths_nodes.run(scenario), rths_nodes.run(plain)
    assert len(reference.updating) == 61
    for host in HOSTS:
        report = hosts.run(scenario, [], host=host, record=tmp_path / host, keep=False)
        assert report.exit_code == 0, report.reason
        found = rths_nodes.read(report.recording)
        assert different(reference, found) == [], host
        assert {*different(without, found)} == {"updating", "updating_time"}, host
        assert found.updating_names == reference.updating_names
        assert found.integrator == reference.integrator
        assert found.information["gaps"] == "0"


def test_with_a_rig_file_the_bits_are_the_same_on_all_hosts(tmp_path, different):
    reference = rths_nodes.run("chen_ricles_2010", [BRIEF], rig="bench_simulated")
    for host in HOSTS:
        record = tmp_path / host
        report = hosts.run(
            "chen_ricles_2010", [BRIEF], host=host, record=record, keep=False, rig="bench_simulated"
        )
        found = rths_nodes.read(record)
        assert different(reference, found) == [], host
        assert found.scenario.rig_file.name == report.scenario.rig_file.name == "bench_simulated"


DELAY = {"delay": 0.0137}
SECTIONS = {  # what a compensator needs beside its defaults
    "adaptive": {"compensator": {"type": "inverse", "alpha": 15.0}, "indicator": "energy", "k_p_per_joule": 0.01},
    "adaptive_time_series": DELAY | {"window": 0.5, "trigger_amplitude": 1e-4},
    "chain": {"first": {"type": "discrete_model"}, "second": {"type": "polynomial"} | DELAY},
    "derivative_feedforward": DELAY,
    "identified_inverse": {
        "inverse": {
            "displacement": [[1.0]],
            "velocity": [[0.0137]],
            "acceleration": [[1.2e-4]],
            "jerk": [[5e-7]],
        }
    },
    "linear": {"law": {"numerator": [0.0137, 1.0], "denominator": [0.002, 1.0]}},
    "linear_acceleration": DELAY,
    "polynomial": DELAY,
    "model_based": {"known": {"mass": [[100.0]], "damping": [[50.0]], "stiffness": [[1e6]]}},
}
LEARNING = (  # soft start, noise and transport, all samples different
    "duration=0.6",
    "soft_start={amplitude: 0.001, rise_time: 0.1, duration: 0.4, fall_time: 0.1, rest_time: 0.1}",
    "axes.damper.limits.force=1e6",
    "axes.damper.limits.velocity=100",
)


def with_compensator(data):
    """The sweep with a compensator given as data."""
    loaded = files.load("tadc_sweep")
    return override(replace(loaded, [(["compensator"], data)]), LEARNING)


def one_after_another(names):
    """All of them in one chain."""
    first, *rest = [{"type": name} | SECTIONS.get(name, {}) for name in names]
    return {"type": "chain", "first": first, "second": one_after_another(names[1:])} if rest else first


HERE = [name for name in registry.names("compensator") if not registry.load("compensator", name).external]
HERE.remove("predefined")
"""Compensators of this process that take a soft start; test_fmu_compensator.py has those of others."""


@pytest.mark.parametrize("name", HERE)
def test_every_compensator_gives_the_same_bits_over_topics(name, tmp_path, different):
    loaded = with_compensator({"type": name} | SECTIONS.get(name, {}))
    reference = hosts.run(loaded)
    assert reference.outcome == "finished", reference.reason
    report = hosts.run(loaded, host="composed", record=tmp_path / "run", keep=False)
    assert report.exit_code == 0, report.reason
    assert different(reference.read(), rths_nodes.read(report.recording)) == []


def test_commands_of_a_history_give_the_same_bits_over_topics(tmp_path, different):
    plain = files.load("tadc_sweep", ["duration=0.6", "soft_start=null"])
    wave = np.sin(0.02 * np.arange(plain.samples + 2.0))[:, None] * 1e-4
    history = History(tuple(plain.axes), plain.servo_rate, "a wave", np.zeros((len(wave), 3, 1)), wave)
    history.save(tmp_path / "history.npz")
    loaded = replace(plain, [(["compensator"], {"type": "predefined", "history": str(tmp_path / "history.npz")})])
    reference = hosts.run(loaded)
    report = hosts.run(loaded, host="composed", record=tmp_path / "run", keep=False)
    assert (reference.outcome, report.outcome) == ("finished", "finished"), report.reason
    assert different(reference.read(), rths_nodes.read(report.recording)) == []


def test_all_compensators_in_one_chain_give_the_same_bits_in_processes(tmp_path, different):
    mild = ("none", "discrete_model", "adaptive_time_series", "linear_acceleration", "adaptive", "polynomial")
    loaded = with_compensator(one_after_another(mild))
    reference = hosts.run(loaded)
    report = hosts.run(loaded, host="processes", record=tmp_path / "run", keep=False)
    assert report.outcome == reference.outcome, report.reason
    assert different(reference.read(), rths_nodes.read(report.recording)) == []


@pytest.mark.parametrize("host", ["composed", "processes"])
def test_a_real_time_run_gives_the_same_bits(host, patience, different):
    # in one process nothing is bridged: there the motion may be as large as in a test
    overrides = [SHORT, *patience, *(["ground_motion.scale=0.52"] if host == "composed" else [])]
    reference = rths_nodes.run("chen_ricles_2010", overrides)
    run = rths_nodes.run("chen_ricles_2010", overrides, host=host, pace="realtime")
    assert run.information["gaps"] == "0"
    bridged = run.flags & np.uint32(FLAG_BRIDGED) != 0
    assert run.timing["bridged"] == np.count_nonzero(bridged)
    if host == "composed" or not bridged.any():
        flags, run.flags = run.flags, reference.flags  # a tick may slip; what was computed must not show it
        assert different(reference, run) == []
        assert set(flags.tolist()) <= {0, FLAG_SLIPPED}
    else:  # a busy machine keeps processes waiting for each other; until then they have the same bits
        first = int(np.argmax(bridged))
        assert run.command[:first].tobytes() == reference.command[:first].tobytes()
        assert run.displacement[:first].tobytes() == reference.displacement[:first].tobytes()


WRONG = (  # as little as the limits let pass
    "duration=0.4",
    "axes.north.sensors={displacement_offset: 1.0e-5, force_drift: 50.0, second: {noise_rms: 1.0e-6}}",
    "axes.north.output={static_stiffness: 1.0e8, lost_motion: 1.0e-5, offset: 1.0e-5, scale: 1.01}",
    "axes.south.sensors={force_scale: 0.9, displacement_noise_rms: 1.0e-6, displacement_scale: 1.02}",
    "axes.south.specimen={type: with_backlash, width: 1.0e-5, specimen: {type: kelvin_voigt, stiffness: 1.5e5}}",
    "port={type: simulator, hydraulics: high, interlock: closed, transport_samples: 1}",
)


def test_a_rig_that_is_wrong_gives_the_same_bits_and_trips_at_the_same_sample(tmp_path, different):
    options = {"faults": ["hydraulics@0.3:off"]}
    reference = hosts.run("two_actuator_coupler", WRONG, **options)
    assert mentions(reference.reason, "rig", "hydraulics")
    report = hosts.run(
        "two_actuator_coupler", WRONG, host="composed", record=tmp_path / "run", keep=False, **options
    )
    assert (report.outcome, report.reason) == ("tripped", reference.reason)
    assert different(reference.read(), rths_nodes.read(report.recording)) == []


BREACHES = (
    "axes.story_1.limits.force=1.0e5",
    "axes.story_1.limits.velocity=0.05",
    "monitor.tracking_indicator_rate=1e-6",
)


@pytest.mark.parametrize(
    ("host", "override"),
    [
        *itertools.product(("embedded", "composed"), BREACHES),
        ("processes", BREACHES[0]),
        pytest.param("processes", BREACHES[1], marks=pytest.mark.soak),
        pytest.param("processes", BREACHES[2], marks=pytest.mark.soak),
    ],
)
def test_a_trip_comes_at_the_same_sample_on_all_hosts(host, override, tmp_path, different):
    overrides = ["duration=6", override]
    reference = rths_nodes.run("chen_ricles_2010", overrides)
    report = hosts.run("chen_ricles_2010", overrides, host=host, record=tmp_path / "run", keep=False)
    assert (report.outcome, report.exit_code) == ("tripped", 3)
    assert override.partition("=")[0] in report.reason
    run = rths_nodes.read(report.recording)
    assert different(reference, run) == []
    assert run.information["reason"] == report.reason
    assert np.flatnonzero(run.flags & 8)[0] == np.flatnonzero(reference.flags & 8)[0]


def test_foreign_readers_decode_every_message_of_a_node_recording(tmp_path):
    rosbags = pytest.importorskip("rosbags.highlevel")
    from mcap_ros2.reader import read_ros2_messages

    hosts.run("chen_ricles_2010", [SHORT], host="composed", record=tmp_path / "run")
    recording = bag.read(tmp_path / "run")
    count = sum(recording.counts.values())
    assert recording.counts["/rths/measurement"] == 1541
    with rosbags.AnyReader([tmp_path / "run"]) as reader:
        samples = [
            reader.deserialize(data, connection.msgtype).sample
            for connection, _, data in reader.messages()
            if connection.topic == "/rths/measurement"
        ]
        assert samples == list(range(1541))
        assert sum(1 for _ in reader.messages()) == count
    decoded = list(read_ros2_messages(str(recording.path)))
    assert len(decoded) == count
    forces = [m.ros_msg.force[0] for m in decoded if m.channel.topic == "/rths/measurement"]
    assert forces == rths_nodes.read(tmp_path / "run").force[:, 0].tolist()


def test_ordinary_typed_subscribers_hear_the_loop(patience):
    from rclpy.context import Context
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.node import Node

    from rths_nodes.msg import Measurement

    context = Context()
    rclpy.init(context=context)
    node = Node("listener", context=context)
    heard: list[float] = []
    node.create_subscription(Measurement, "/rths/measurement", lambda m: heard.append(m.displacement[0]), 4000)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    report: list[hosts.RunResult] = []
    thread = threading.Thread(
        target=lambda: report.append(
            hosts.run("chen_ricles_2010", ["duration=3", *patience], host="composed", pace="realtime")
        )
    )
    thread.start()
    end = time.monotonic() + 30.0
    while thread.is_alive() and time.monotonic() < end:
        executor.spin_once(timeout_sec=0.02)
    for _ in range(4000):
        executor.spin_once(timeout_sec=0.0)
    thread.join()
    executor.shutdown()
    node.destroy_node()
    rclpy.shutdown(context=context)
    assert report[0].outcome == "finished", report[0].reason
    expected = rths_nodes.run("chen_ricles_2010", ["duration=3", *patience]).displacement[:, 0].tolist()
    assert heard  # before it was found, it heard nothing
    assert heard == expected[-len(heard) :]


def start_node(role, tmp_path, *parameters):
    words = [part for text in parameters for part in ("-p", text)]
    return subprocess.Popen(
        [sys.executable, "-m", "rths_nodes.app.node", role, "--ros-args", *words],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("compensator.alhpa_es:=20.0", ("alpha_es",)),
        ("compensator.alpha_es:=0.5", ("compensator.alpha_es", "0.5", ">= 1")),
        ("compensator.alpha_es:=fast", ("number",)),
        ("scenario:=chen_ricles_2011", ("chen_ricles_2010",)),
        ("pace:=hasty", ("lockstep", "realtime")),
    ],
)
def test_a_node_refuses_wrong_parameters(parameter, message, tmp_path):
    given = () if parameter.startswith("scenario") else ("scenario:=chen_ricles_2010",)
    node = start_node("compensator", tmp_path, *given, parameter)
    _, errors = node.communicate(timeout=60)
    assert node.returncode == 2
    assert mentions(errors, *message)
    assert "Traceback" not in errors


def test_nodes_with_different_scenarios_do_not_start(tmp_path):
    peers = "peers:=['actuator', 'compensator']"
    actuator = start_node("actuator", tmp_path, "scenario:=chen_ricles_2010", peers)
    compensator = start_node("compensator", tmp_path, "scenario:=predefined_sine", peers)
    _, errors = actuator.communicate(timeout=60)
    compensator.communicate(timeout=60)
    assert (actuator.returncode, compensator.returncode) == (2, 2)
    assert mentions(errors, "compensator", "scenario")
    assert "Traceback" not in errors


def test_parameters_of_a_node_override_its_section_and_are_recorded(tmp_path, different):
    from rths_nodes.ros.hosting import composed
    from rths_nodes.ros.hosting import descriptions as launching

    descriptions = launching.describe(
        run_options({"scenario": "chen_ricles_2010", "overrides": [SHORT], "record": tmp_path / "run"})
    )
    for description in descriptions:
        if description.role == "compensator":
            description.parameters["compensator.alpha_es"] = 29  # an integer for a number is fine
    result = composed.run(descriptions, hosts.open_writer)
    assert result.exit_code == 0
    run = rths_nodes.read(tmp_path / "run")
    reference = rths_nodes.run("chen_ricles_2010", [SHORT, "compensator.alpha_es=29"])
    assert different(reference, run) == []
    statuses = [
        decode("NodeStatus", data)
        for topic, data, _ in bag.read(tmp_path / "run").messages()
        if topic == "/rths/node_status"
    ]
    told = {status["node"]: status["parameters"] for status in statuses}
    assert set(told) == {"integrator", "compensator", "actuator", "monitor", "recorder"}
    assert "alpha_es: 29.0" in told["compensator"]


def test_an_operator_may_stop_before_the_test_begins(tmp_path):
    report = hosts.run("chen_ricles_2010", host="composed", record=tmp_path / "run", interrupted=lambda: True)
    assert (report.outcome, report.exit_code, report.samples) == ("held", 130, 0)
    assert mentions(report.reason, "interrupted", "test")
    assert rths_nodes.read(tmp_path / "run").outcome == "held"


def test_deactivating_the_actuator_node_holds_the_rig(tmp_path):
    from rths_nodes.ros.hosting import composed
    from rths_nodes.ros.hosting import descriptions as launching
    from rths_nodes.ros.nodes.actuator import ActuatorNode

    descriptions = launching.describe(
        run_options(
            {"scenario": "chen_ricles_2010", "host": "composed", "pace": "realtime", "record": tmp_path / "run"}
        )
    )
    with composed.ros_context() as context:
        nodes = [composed.make_node(d.role, hosts.open_writer, context, d.parameters) for d in descriptions]
        for node in nodes:
            node.start()
        rig = next(node for node in nodes if isinstance(node, ActuatorNode))
        called = []

        def deactivate() -> None:
            if rig.rig.sample > 100 and not called:
                called.append(rig.trigger_deactivate())

        executor = composed.LoopExecutor(nodes, context, deactivate)
        executor.run()
        assert rig.rig.machine.state.name == "HELD"
        assert "deactivated" in rig.rig.machine.reason
        for node in nodes:
            node.destroy_node()


def test_a_run_ends_in_order_where_its_terminal_is_closed(tmp_path):
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "rths_nodes.app.cli", "run", "chen_ricles_2010", "--set=duration=2000"]
    run = subprocess.Popen(
        [*command, "--record", str(tmp_path / "run")],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=at_a_terminal,
    )
    os.close(follower)
    journal = tmp_path / "run" / "run_0.mcap"
    while run.poll() is None and not (journal.exists() and journal.stat().st_size > 100_000):
        os.read(leader, 65536)  # the progress bar
    os.close(leader)
    assert run.wait(timeout=60) == 130
    assert rths_nodes.read(tmp_path / "run").outcome == "held"


def test_an_interrupted_run_is_held_and_recorded(tmp_path, patience):
    run = subprocess.Popen(
        [sys.executable, "-m", "rths_nodes.app.cli", "run", "chen_ricles_2010", "--host", "processes"]
        + ["--pace", "realtime", "--record", str(tmp_path / "run")]
        + [f"--set={words}" for words in patience],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    journal = tmp_path / "run" / "run_0.mcap"
    while run.poll() is None and not (journal.exists() and journal.stat().st_size > 100_000):
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Traceback" not in errors
    read = rths_nodes.read(tmp_path / "run")
    assert read.outcome == "held"
    assert read.information["gaps"] == "0"
    reference = rths_nodes.run("chen_ricles_2010", ["duration=5", *patience])
    driven = min(int(np.argmax(read.flags & (FLAG_BRIDGED | FLAG_TRIPPED) != 0)), len(reference.time))
    assert driven > 0
    assert np.array_equal(read.displacement[:driven], reference.displacement[:driven])


def test_without_a_structure_scenario_names_come_from_the_axes():
    assert Assembly(files.load("predefined_sine")).names.model == ("axis_1",)


def test_check_says_which_depth_the_hops_of_a_recording_need(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check, "REHEARSED_S", 0.2)
    patient = ["duration=1.2", "hops.depth=5", "bridge.max_bridge=1.0"]
    hosts.run("chen_ricles_2010", patient, host="composed", pace="realtime", record=tmp_path / "run", keep=False)
    assert main(["check", "chen_ricles_2010", "--hops", str(tmp_path / "run")]) == 0
    told = capsys.readouterr().out
    assert mentions(told, "hops", "99.9 %")
    assert re.search(r"This requires hops.depth = \d+; the scenario has 0", told)
    assert mentions(told, "hops.depth", "0", "norm")
