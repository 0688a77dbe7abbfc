# SPDX-License-Identifier: Apache-2.0
"""Equality to the bit of the hosts: embedded, composed over topics, and in processes."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
from absorber import frame, section
from emulated_bench import free_port
from messages import mentions
from programs import RTHS, child_environment, start_node, wait_for_journal
from terminal import Terminal

import rths_nodes
from rths_nodes.app import hosts
from rths_nodes.app.commands import check
from rths_nodes.core import registry
from rths_nodes.core.samples import FLAG_BRIDGED, FLAG_SLIPPED, FLAG_TRIPPED
from rths_nodes.core.wire import decode
from rths_nodes.loop.options import HOSTS, OBSERVERS, run_options
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.scenario.files import override, replace
from rths_nodes.mechanics.history import History
from rths_nodes.recording import bag

pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
pytestmark = pytest.mark.nodes

CHEN = "chen_ricles_2010"
SHORT = "duration=1.5"
BRIEF = "duration=0.6"
HARD = (  # noise, transport delay, stiff plant, memory, ramp without sawtooth
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
    "hard": (CHEN, HARD),
    "sine": ("predefined_sine", (BRIEF,)),
    "coupled": ("phillips_spencer_2012", ("duration=0.3", "compensator.feedback={}")),
    "coupler": ("two_actuator_coupler", (BRIEF,)),
    "large": ("tall_frame", (BRIEF,)),
    "loaded": (  # all changes of control mode, with drift
        "column_under_axial_load",
        (
            "duration=1.2",
            "ground_motion.delay=0.2",
            "ground_motion.motion={type: harmonic, amplitude: 0.5, frequency: 2.0, periods: 2}",
            "axes.load.load={value: 50.0e3, ramp_time: 0.4, held_for: 0.1, held_from: 1.0}",
        ),
    ),
    "hops": (  # and samples of transport that only the rig knows
        CHEN,
        (*HARD[:2], "hops.depth=3", "port.transport_samples=1", "axes.story_1.sensors.force_noise_rms=100.0"),
    ),
    "benchmark": ("rths_benchmark_2020", ("duration=0.3", "ground_motion.record=elcentro_1940_ns")),
    "rig file": (CHEN, (BRIEF,)),
}


@pytest.mark.parametrize(
    "case",
    [
        "hard",
        "coupled",
        "benchmark",
        "loaded",
        "hops",
        "rig file",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("sine", "coupler", "large")),
    ],
)
def test_lockstep_runs_are_equal_on_all_hosts(case, tmp_path, different):
    name, overrides = CASES[case]
    rig = "bench_simulated" if case == "rig file" else ""
    reference = rths_nodes.run(name, overrides, rig=rig)
    assert reference.outcome == "finished"
    for host in HOSTS:
        for number in range(2 if case == "hard" and host != "processes" else 1):
            record = tmp_path / f"{host}{number}"
            report = hosts.run(name, overrides, host=host, record=record, keep=False, rig=rig)
            assert report.exit_code == 0, report.reason
            run = rths_nodes.read(report.recording)
            assert different(reference, run) == [], f"{host}, run {number}"
            assert report.metrics == reference.metrics or np.isnan(report.metrics["hsem_percent"])
            assert report.metrics["axes"] == reference.metrics["axes"]
            if rig:
                assert run.scenario.rig_file.name == report.scenario.rig_file.name == rig


def test_updated_copies_are_equal_on_all_hosts(tmp_path, different):
    """The nodes record the updated parameters to the bit and without a gap."""
    overrides = [BRIEF, "axes.story_1.sensors.force_delay=7", "ground_motion.scale=1.0"]
    scenario, plain = frame(*overrides, updating=section()), frame(*overrides)
    reference, without = rths_nodes.run(scenario), rths_nodes.run(plain)
    assert len(reference.updating) == 61
    for host in HOSTS:
        report = hosts.run(scenario, [], host=host, record=tmp_path / host, keep=False)
        assert report.exit_code == 0, report.reason
        run = rths_nodes.read(report.recording)
        assert different(reference, run) == [], host
        assert {*different(without, run)} == {"updating", "updating_time"}, host
        assert run.updating_names == reference.updating_names
        assert run.integrator == reference.integrator
        assert run.information["gaps"] == "0"


DELAY = {"delay": 0.0137}
SECTIONS = {  # required parameters of compensators
    "adaptive": {"compensator": {"type": "inverse", "alpha": 15.0}, "indicator": "energy", "k_p_per_joule": 0.01},
    "adaptive_time_series": DELAY | {"window": 0.5, "trigger_amplitude": 1e-4},
    "chain": {"first": {"type": "discrete_model"}, "second": {"type": "polynomial"} | DELAY},
    "derivative_feedforward": DELAY,
    "identified_inverse": {
        "inverse": {"displacement": [[1.0]], "velocity": [[0.0137]], "acceleration": [[1.2e-4]], "jerk": [[5e-7]]}
    },
    "linear": {"law": {"numerator": [0.0137, 1.0], "denominator": [0.002, 1.0]}},
    "linear_acceleration": DELAY,
    "polynomial": DELAY,
    "model_based": {"known": {"mass": [[100.0]], "damping": [[50.0]], "stiffness": [[1e6]]}},
}
LEARNING = (  # a soft start, in which compensators adapt
    "duration=0.6",
    "soft_start={amplitude: 0.001, rise_time: 0.1, duration: 0.4, fall_time: 0.1, rest_time: 0.1}",
    "axes.damper.limits.force=1e6",
    "axes.damper.limits.velocity=100",
)


def with_compensator(*names):
    """Return the sweep with a chain of the named compensators."""
    *others, compensator = [{"type": name} | SECTIONS.get(name, {}) for name in names]
    for first in reversed(others):
        compensator = {"type": "chain", "first": first, "second": compensator}
    return override(replace(files.load("tadc_sweep"), [(["compensator"], compensator)]), LEARNING)


BUILT_IN = [name for name in registry.names("compensator") if not registry.load("compensator", name).external]
BUILT_IN.remove("predefined")
"""Compensators with a soft start; test_fmu_compensator.py has those of other processes."""


@pytest.fixture
def equal_to_embedded(tmp_path, different):
    """Asserts that a host records the bits of the embedded host, and returns both results."""

    def equal_to_embedded(scenario, overrides=(), host="composed", **options):
        reference = hosts.run(scenario, overrides, **options)
        report = hosts.run(scenario, overrides, host=host, record=tmp_path / "run", keep=False, **options)
        assert (report.outcome, report.reason) == (reference.outcome, reference.reason)
        assert different(reference.read(), rths_nodes.read(report.recording)) == []
        return reference, report

    return equal_to_embedded


@pytest.mark.parametrize("name", BUILT_IN)
def test_compensators_are_equal_over_topics(name, equal_to_embedded):
    reference, report = equal_to_embedded(with_compensator(name))
    assert reference.outcome == "finished", reference.reason
    assert report.exit_code == 0, report.reason


def test_predefined_commands_are_equal_over_topics(tmp_path, equal_to_embedded):
    plain = files.load("tadc_sweep", ["duration=0.6", "soft_start=null"])
    wave = np.sin(0.02 * np.arange(plain.samples + 2.0))[:, None] * 1e-4
    history = History(tuple(plain.axes), plain.servo_rate, "a wave", np.zeros((len(wave), 3, 1)), wave)
    history.save(tmp_path / "history.npz")
    loaded = replace(plain, [(["compensator"], {"type": "predefined", "history": str(tmp_path / "history.npz")})])
    reference, _ = equal_to_embedded(loaded)
    assert reference.outcome == "finished"


def test_chain_of_compensators_is_equal_in_processes(equal_to_embedded):
    mild = ("none", "discrete_model", "adaptive_time_series", "linear_acceleration", "adaptive", "polynomial")
    equal_to_embedded(with_compensator(*mild), host="processes")


@pytest.mark.parametrize("host", ["composed", "processes"])
def test_realtime_run_is_equal_until_a_bridge(host, patience, different):
    # the composed host bridges nothing: its motion may be as large as in a test
    overrides = [SHORT, *patience, *(["ground_motion.scale=0.52"] if host == "composed" else [])]
    reference = rths_nodes.run(CHEN, overrides)
    run = rths_nodes.run(CHEN, overrides, host=host, pace="realtime")
    assert run.information["gaps"] == "0"
    bridged = run.flags & np.uint32(FLAG_BRIDGED) != 0
    assert run.timing["bridged"] == np.count_nonzero(bridged)
    if host == "composed" or not bridged.any():
        assert {*different(reference, run)} <= {"flags"}
        assert {*run.flags.tolist()} <= {0, FLAG_SLIPPED}, "a tick may slip"
    else:  # a busy machine delays processes; until then the bits are equal
        first = int(np.argmax(bridged))
        assert run.command[:first].tobytes() == reference.command[:first].tobytes()
        assert run.displacement[:first].tobytes() == reference.displacement[:first].tobytes()


@pytest.mark.parametrize("pace", [pytest.param("lockstep", marks=pytest.mark.soak), "realtime"])
def test_separate_monitor_and_recorder_are_equal_and_complete(pace, tmp_path, patience, different):
    overrides = [SHORT, *patience]
    report = hosts.run(CHEN, overrides, host="composed", pace=pace, separate=OBSERVERS, record=tmp_path / "run")
    assert (report.outcome, report.reason) == ("finished", "")
    assert report.messages["complete"]
    reference = rths_nodes.run(CHEN, overrides)
    assert {*different(reference, rths_nodes.read(tmp_path / "run"))} <= {"flags"}, "a tick may slip"
    assert report.metrics["axes"] == reference.metrics["axes"]


WRONG = (  # faults of the rig just within the limits
    "duration=0.4",
    "axes.north.sensors={displacement_offset: 1.0e-5, force_drift: 50.0, second: {noise_rms: 1.0e-6}}",
    "axes.north.output={static_stiffness: 1.0e8, lost_motion: 1.0e-5, offset: 1.0e-5, scale: 1.01}",
    "axes.south.sensors={force_scale: 0.9, displacement_noise_rms: 1.0e-6, displacement_scale: 1.02}",
    "axes.south.specimen={type: with_backlash, width: 1.0e-5, specimen: {type: kelvin_voigt, stiffness: 1.5e5}}",
    "port={type: simulator, hydraulics: high, interlock: closed, transport_samples: 1}",
)


def test_faulty_rig_is_equal_and_trips_at_the_same_sample(equal_to_embedded):
    reference, report = equal_to_embedded("two_actuator_coupler", WRONG, faults=["hydraulics@0.3:off"])
    assert mentions(reference.reason, "rig", "hydraulics")
    assert report.outcome == "tripped"


BREACHES = (
    "axes.story_1.limits.force=1.0e5",
    "axes.story_1.limits.velocity=0.05",
    "monitor.tracking_indicator_rate=1e-6",
    "axes.story_1.limits.stroke=0.005 monitor.energy_error_percent=0.05",  # while a trip by the monitor is pending
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
def test_trip_is_at_the_same_sample_on_all_hosts(host, override, tmp_path, different):
    overrides = ["duration=6", *override.split()]
    reference = rths_nodes.run(CHEN, overrides)
    report = hosts.run(CHEN, overrides, host=host, record=tmp_path / "run", keep=False)
    assert (report.outcome, report.exit_code) == ("tripped", 3)
    assert override.partition("=")[0] in report.reason
    run = rths_nodes.read(report.recording)
    assert different(reference, run) == []
    assert run.information["reason"] == report.reason
    assert np.flatnonzero(run.flags & 8)[0] == np.flatnonzero(reference.flags & 8)[0]


def test_other_readers_decode_a_recording_of_nodes(tmp_path):
    rosbags = pytest.importorskip("rosbags.highlevel")
    from mcap_ros2.reader import read_ros2_messages

    hosts.run(CHEN, [SHORT], host="composed", record=tmp_path / "run")
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


def test_typed_subscription_receives_the_loop(patience):
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.node import Node

    from rths_nodes.msg import Measurement
    from rths_nodes.ros.hosting import composed

    overrides = ["duration=3", *patience]
    received: list[float] = []
    with composed.ros_context() as context, ThreadPoolExecutor(1) as pool:
        node = Node("listener", context=context)
        node.create_subscription(
            Measurement, "/rths/measurement", lambda message: received.append(message.displacement[0]), 4000
        )
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        result = pool.submit(hosts.run, CHEN, overrides, host="composed", pace="realtime")
        deadline = time.monotonic() + 30.0
        while not result.done() and time.monotonic() < deadline:
            executor.spin_once(timeout_sec=0.02)
        for _ in range(4000):
            executor.spin_once(timeout_sec=0.0)
        report = result.result()
        executor.shutdown()
        node.destroy_node()
    assert report.outcome == "finished", report.reason
    expected = rths_nodes.run(CHEN, overrides).displacement[:, 0].tolist()
    assert received
    assert received == expected[-len(received) :], "nothing is lost after the discovery"


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
def test_node_refuses_invalid_parameters(parameter, message, tmp_path):
    scenario = [] if parameter.startswith("scenario") else [f"scenario:={CHEN}"]
    node = start_node("compensator", tmp_path, *scenario, parameter, stderr=subprocess.PIPE, cwd=tmp_path)
    _, errors = node.communicate(timeout=60)
    assert node.returncode == 2
    assert mentions(errors, *message)
    assert "Traceback" not in errors


def test_nodes_with_different_scenarios_do_not_start(tmp_path):
    peers = "peers:=['actuator', 'compensator']"
    options = {"stderr": subprocess.PIPE, "cwd": tmp_path}
    actuator = start_node("actuator", tmp_path, f"scenario:={CHEN}", peers, **options)
    compensator = start_node("compensator", tmp_path, "scenario:=predefined_sine", peers, **options)
    _, errors = actuator.communicate(timeout=60)
    compensator.communicate(timeout=60)
    assert (actuator.returncode, compensator.returncode) == (2, 2)
    assert mentions(errors, "compensator", "scenarios")
    assert "Traceback" not in errors


def test_node_parameters_override_the_scenario_and_are_recorded(tmp_path, different):
    from rths_nodes.ros.hosting import composed
    from rths_nodes.ros.hosting.node_processes import describe

    descriptions = describe(run_options({"scenario": CHEN, "overrides": [SHORT], "record": tmp_path / "run"}))
    for description in descriptions:
        if description.role == "compensator":
            description.parameters["compensator.alpha_es"] = 29  # an integer for a number is fine
    assert composed.run(descriptions, hosts.open_writer).exit_code == 0
    reference = rths_nodes.run(CHEN, [SHORT, "compensator.alpha_es=29"])
    assert different(reference, rths_nodes.read(tmp_path / "run")) == []
    statuses = [
        decode("NodeStatus", data)
        for topic, data, _ in bag.read(tmp_path / "run").messages()
        if topic == "/rths/node_status"
    ]
    parameters = {status["node"]: status["parameters"] for status in statuses}
    assert set(parameters) == {"integrator", "compensator", "actuator", "monitor", "recorder"}
    assert "alpha_es: 29.0" in parameters["compensator"]


def test_interrupt_before_the_test_holds_it(tmp_path):
    report = hosts.run(CHEN, host="composed", record=tmp_path / "run", interrupted=lambda: True)
    assert (report.outcome, report.exit_code, report.samples) == ("held", 130, 0)
    assert mentions(report.reason, "interrupted", "test")
    assert rths_nodes.read(tmp_path / "run").outcome == "held"


def test_interrupt_while_the_port_connects_holds_the_test(fresh_programs, tmp_path, capfd):
    """Each node printed a line, the reason was missing, and a recording was named that did not exist."""
    changes = ["port.connect_within=30", f"port.port={free_port()}"]
    options = {"rig": "bench_udp", "host": "processes", "record": tmp_path / "run"}
    report = hosts.run(CHEN, changes, **options, interrupted=lambda: True)
    assert (report.outcome, report.exit_code, report.samples) == ("held", 130, 0)
    assert mentions(report.reason, "interrupted", "test")
    assert report.recording is None or report.recording.exists()
    assert capfd.readouterr().err == ""


def test_deactivating_the_actuator_node_holds_the_rig(tmp_path):
    from rths_nodes.ros.hosting import composed
    from rths_nodes.ros.hosting.node_processes import describe
    from rths_nodes.ros.nodes.actuator import ActuatorNode

    options = {"scenario": CHEN, "host": "composed", "pace": "realtime", "record": tmp_path / "run"}
    descriptions = describe(run_options(options))
    with composed.ros_context() as context:
        nodes = [composed.make_node(d.role, hosts.open_writer, context, d.parameters) for d in descriptions]
        for node in nodes:
            node.start()
        rig = next(node for node in nodes if isinstance(node, ActuatorNode))
        called = []

        def deactivate() -> None:
            if rig.rig.sample > 100 and not called:
                called.append(rig.trigger_deactivate())

        composed.LoopExecutor(nodes, context, deactivate).run()
        assert rig.rig.machine.state.name == "HELD"
        assert "deactivated" in rig.rig.machine.reason
        for node in nodes:
            node.destroy_node()


def test_closed_terminal_holds_the_test(tmp_path):
    command = [*RTHS, "run", CHEN, "--set=duration=2000", "--record", str(tmp_path / "run")]
    with closing(Terminal(command, tmp_path, child_environment())) as terminal:
        wait_for_journal(tmp_path / "run" / "run_0.mcap", terminal.program, lambda: terminal.wait_for("."))
        terminal.hang_up()
        assert terminal.end() == 130
    assert rths_nodes.read(tmp_path / "run").outcome == "held"


def test_interrupted_run_is_held_and_recorded(tmp_path, patience):
    run = subprocess.Popen(
        [*RTHS, "run", CHEN, "--host", "processes", "--pace", "realtime", "--record", str(tmp_path / "run")]
        + [f"--set={override}" for override in patience],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    wait_for_journal(tmp_path / "run" / "run_0.mcap", run)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "Traceback" not in errors
    recording = rths_nodes.read(tmp_path / "run")
    assert recording.outcome == "held"
    assert recording.information["gaps"] == "0"
    reference = rths_nodes.run(CHEN, ["duration=5", *patience])
    driven = min(int(np.argmax(recording.flags & (FLAG_BRIDGED | FLAG_TRIPPED) != 0)), len(reference.time))
    assert driven > 0
    assert np.array_equal(recording.displacement[:driven], reference.displacement[:driven])


def test_model_names_without_a_structure_are_axis_names():
    assert Assembly(files.load("predefined_sine")).names.model == ("axis_1",)


def test_check_prints_the_required_depth_of_hops(tmp_path, output, monkeypatch):
    monkeypatch.setattr(check, "REHEARSED_S", 0.2)
    patient = ["duration=1.2", "hops.depth=5", "bridge.max_bridge=1.0"]
    hosts.run(CHEN, patient, host="composed", pace="realtime", record=tmp_path / "run", keep=False)
    report = output("check", CHEN, "--hops", str(tmp_path / "run"))
    assert mentions(report, "hops", "99.9 %")
    assert re.search(r"This requires hops.depth = \d+; the scenario has 0", report)
    assert mentions(report, "hops.depth", "0", "norm")
