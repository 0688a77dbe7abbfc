# SPDX-License-Identifier: Apache-2.0
"""Tests of our launch files in launched processes: exit codes, recordings, ends of tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("launch_testing", reason="ROS 2's launch is not installed here")
pytest.importorskip("launch_ros", reason="ROS 2's launch is not installed here")

import numpy as np
from ament_index_python.resources import has_resource
from launch import LaunchDescription
from launch.launch_description_sources import get_launch_description_from_python_launch_file
from launched import Launch
from messages import mentions
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import ReliabilityPolicy

import rths_nodes
from rths_nodes.core import yaml_text
from rths_nodes.core.resources import resource
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.recording import bag
from rths_nodes.ros import names, stack_files
from rths_nodes.ros.hosting import composed
from rths_nodes.ros.names import ACTUATOR, LOOP, NODES, RECORDER

FILES = ("rths.launch.py", "single_actuator.launch.py")
MULTI = "multi_actuator.launch.py"
SHORT = "duration=2"
LONG = "duration=2000"


def information(folder: Path) -> dict[str, str]:
    return dict(bag.read(folder / "run").information)


RECORDED = "recording: run; rths report run creates run.html"
"""End of the last message of a recorded test."""


def assert_recorded_as_run(folder: Path, name: str, overrides: list[str], leave_out: str = "") -> None:
    """The recorded histories are bit-identical to those of the reference host."""
    reference = rths_nodes.run(name, overrides).arrays()
    for history, values in rths_nodes.read(folder / "run").arrays().items():
        if history != leave_out:
            assert np.array_equal(values, reference[history], equal_nan=True), history


@pytest.mark.parametrize("file", [*FILES, MULTI])
def test_every_argument_is_described(file):
    description = get_launch_description_from_python_launch_file(str(resource("launch", file)))
    assert isinstance(description, LaunchDescription)
    arguments = {argument.name: argument for argument in description.get_launch_arguments()}
    described = ("scenario", "case", "overrides", "pace", "record", "directory", "run_id", "namespace")
    for name in (*described, "log_level"):
        assert arguments[name].description not in ("", "no description given")
    for name in ("pace", "actuator_nodes", "record", "log_level", "use_sim_time", "autostart"):
        assert len(arguments[name].choices) >= 2


def ended_well(run: Launch) -> bool:
    """Return whether a test in real time finished; on a busy machine it may be reported as not valid."""
    return run.end() == ("not valid: " in run.output) and ("ERROR" in run.output) == ("not valid: " in run.output)


def test_page_shows_test_and_ends_with_it(launch):
    pytest.importorskip("aiohttp")
    run = launch(f"overrides:={LONG}", "pace:=realtime", "page:=true", "page_port:=0", "directory:=run")
    run.wait_for(lambda: "the page of /rths is at http://127.0.0.1:" in run.output)
    address = re.search(r"is at (http://[0-9.:]+)/", run.output)[1]
    with urllib.request.urlopen(f"{address}/situation", timeout=5.0) as answer:
        assert "age" in json.load(answer)
    os.kill(run.popen.pid, signal.SIGINT)
    assert run.end() == 1, run.output
    assert run.clean() == {*NODES, "page"}


def test_test_continues_without_its_page(launch):
    pytest.importorskip("aiohttp")
    run = launch(
        "overrides:=duration=4 heartbeat.monitor=1.5",
        "pace:=realtime",
        "page:=true",
        "page_port:=0",
        "directory:=run",
    )
    run.wait_for(lambda: "the page of /rths is at" in run.output)
    os.kill(run.pids()["page"], signal.SIGKILL)
    assert run.end() == ("not valid: " in run.output), run.output  # launch reports the killed page as an ERROR
    assert RECORDED in run.output


def test_debug_messages_come_only_from_our_nodes(launch):
    """The loggers of rcl and rmw once wrote 745 000 lines in 14 s, which tripped the test."""
    run = launch("overrides:=duration=2", "record:=none", "log_level:=debug", "pace:=realtime")
    assert ended_well(run), run.output
    debug = [line for line in run.output.splitlines() if "[DEBUG]" in line]
    assert 0 < len(debug) < 200
    assert all("[rths." in line for line in debug), debug
    assert "ticks missed" in run.output


@pytest.mark.parametrize("file", FILES)
def test_test_finishes_and_is_recorded(launch, file, tmp_path):
    run = launch(f"overrides:={SHORT} compensator.alpha_es=20", "directory:=run", "run_id:=monday_1", file=file)
    assert run.end() == 0, run.output
    assert run.clean() == set(NODES)
    assert "ERROR" not in run.output
    assert mentions(run.output.splitlines()[-1], "rths", "2050", RECORDED)
    about = information(tmp_path)
    assert (about["outcome"], about["gaps"], about["run_id"]) == ("finished", "0", "monday_1")
    assert_recorded_as_run(tmp_path, "chen_ricles_2010", [SHORT, "compensator.alpha_es=20"])


in_xml = pytest.mark.skipif(
    not has_resource("packages", "launch_xml"), reason="launch files in XML are not installed here"
)


@pytest.mark.parametrize("file", [pytest.param("rths.launch.xml", marks=in_xml), "rths.launch.py"])
def test_parameters_are_read_from_file(launch, file, tmp_path):
    parameters = {"/rths/compensator": {"ros__parameters": {"compensator.alpha_es": 20.0}}}
    (tmp_path / "mine.yaml").write_text(json.dumps(parameters))
    run = launch(f"overrides:={SHORT}", "directory:=run", "params_file:=mine.yaml", file=file)
    assert run.end() == 0, run.output
    reference = rths_nodes.run("chen_ricles_2010", [SHORT, "compensator.alpha_es=20"])
    assert np.array_equal(rths_nodes.read(tmp_path / "run").command, reference.command)


@pytest.mark.parametrize("text", ["", "[1, 2]", "a: 1"])
def test_file_without_parameters_is_refused(launch, text, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    run = launch("params_file:=mine.yaml")
    assert run.end() == 1
    assert mentions(run.output, "params_file", "mine.yaml", "ros__parameters")


@pytest.mark.parametrize("name", ["rths", "single_actuator", "multi_actuator"])
def test_launch_file_has_xml_wrapper(name):
    (include,) = ElementTree.parse(resource("launch", f"{name}.launch.xml")).getroot()
    assert (include.tag, include.get("file")) == ("include", f"$(dirname)/{name}.launch.py")


@in_xml
def test_xml_wrapper_refuses_unknown_argument(launch):
    run = launch("scenari:=chen_ricles_2010", file="rths.launch.xml")
    assert run.end() == 1
    assert mentions(run.output, "unknown", "scenari", "scenario")


def test_rviz_without_its_packages_is_refused(launch):
    run = launch("rviz:=true")
    assert run.end() == 1
    assert mentions(run.output, "rviz = true", "robot_state_publisher", "rviz2", "apt")


PROGRAM = """#!{python}
import sys, time
open("{name}.arguments", "w").write("\\n".join(sys.argv[1:]))
time.sleep(60.0)
"""


def test_rviz_shows_axes_and_ends_with_test(launch, tmp_path):
    """Programs with the names of the packages, which have no wheels, store their arguments."""
    prefix = tmp_path / "prefix"
    for name in ("robot_state_publisher", "rviz2"):
        marker = prefix / "share" / "ament_index" / "resource_index" / "packages" / name
        program = prefix / "lib" / name / name
        for file, text in ((marker, ""), (program, PROGRAM.format(python=sys.executable, name=name))):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        program.chmod(0o755)
    run = launch("overrides:=duration=4", "rviz:=true", "record:=none", AMENT_PREFIX_PATH=str(prefix))
    files = [tmp_path / f"{name}.arguments" for name in ("robot_state_publisher", "rviz2")]
    run.wait_for(lambda: all(file.exists() and file.read_text() for file in files))
    publisher, viewer = (file.read_text().split("\n") for file in files)
    stored = Path(publisher[publisher.index("--params-file") + 1]).read_text()
    parameters = yaml_text.parse(stored, "parameters")["/**"]["ros__parameters"]
    (joint,) = ElementTree.fromstring(parameters["robot_description"].encode()).iter("joint")
    assert (joint.get("name"), parameters["frame_prefix"]) == ("story_1", "rths/")
    assert "Robot" in Path(viewer[viewer.index("-d") + 1]).read_text()
    assert run.end() == 0, run.output


def test_namespace_applies_to_all_topics(launch, tmp_path):
    run = launch(f"overrides:={SHORT}", "directory:=run", "namespace:=lab/rig_2")
    assert run.end() == 0, run.output
    topics = bag.read(tmp_path / "run").topics.keys() - names.ALSO_RECORDED
    assert topics
    assert all(name.startswith("/lab/rig_2/") for name in topics)


@pytest.mark.parametrize("reliability", [ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT])
def test_reliability_of_streams_is_an_argument(launch, reliability):
    run = launch(f"overrides:={LONG}", "directory:=run", f"reliability:={reliability.name.lower()}")
    run.wait_for_samples()
    with composed.ros_context() as context:
        node = Node("observer", context=context)
        publishers = []
        run.wait_for(lambda: publishers.extend(node.get_publishers_info_by_topic("/rths/command")) or publishers)
        node.destroy_node()
    assert [publisher.qos_profile.reliability for publisher in publishers] == [reliability]


@pytest.mark.parametrize(
    ("argument", "parts"),
    [
        ("scenario:=nonsense", ("unknown", "nonsense", "chen_ricles_2010")),
        ("overrides:=compensator.alfa_es=20", ("alpha_es",)),
        ("overrides:=structure.mass=0", ("structure.mass", "0 kg", "> 0 kg")),
        ("overrides:=duration='3", ("closing", "quotation")),
        ("directory:=/dev/null", ("cannot be created",)),
        ("pace:=fast", ("pace", "fast", "lockstep", "realtime")),
        ("reliability:=sometimes", ("reliability", "sometimes", "reliable", "best_effort")),
        ("namespace:=two words", ("namespace", "two words", "ASCII")),
        ("peer_timeout:=soon", ("peer_timeout", "soon")),
        ("separate:=recorder", ("separate", "composed")),
        ("nodes:=actuator", ("nodes", "run_id", "missing")),
        ("scenaro:=chen_ricles_2010", ("unknown", "scenaro", "scenario")),
        ("page:=true page_port:=many", ("page_port", "many", "65535")),
        ("page:=true page_port:={taken}", ("page_port", "cannot be served", "already")),
    ],
)
def test_wrong_argument_is_refused_before_nodes_start(launch, argument, parts):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = launch(*re.split(" (?=page_port)", argument.format(taken=taken.getsockname()[1])))
        assert run.end() == 1, run.output
    assert mentions(run.output, *parts)
    assert "Traceback" not in run.output
    if not argument.startswith(("pace", "reliability")):  # launch checks these itself
        assert "[ERROR] [launch]: rths: " in run.output
        assert "Caught exception" not in run.output
    assert run.pids() == {}


@pytest.mark.parametrize(
    ("nodes", "discovery", "parts"),
    [
        ("actuator monitr", "SUBNET", ("nodes", "unknown", "monitr", "monitor", "actuator")),
        ("actuator monitor", "", ("nodes", "ROS_AUTOMATIC_DISCOVERY_RANGE")),
        ("integrator", "SUBNET", ("node", "composed")),
    ],
)
def test_impossible_distribution_of_nodes_is_refused(launch, monkeypatch, nodes, discovery, parts):
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", discovery)
    composed = "composed:=true" if nodes == "integrator" else "composed:=false"
    run = launch(f"nodes:={nodes}", "run_id:=monday_1", composed)
    assert run.end() == 1, run.output
    assert mentions(run.output, *parts)
    assert "Traceback" not in run.output
    assert run.pids() == {}


def test_two_launches_run_one_test(launch, monkeypatch, tmp_path):
    """As on two machines, of which one has the actuator node; both report the end of the test."""
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    common = ("run_id:=monday_1", f"overrides:={SHORT}", "directory:=run")
    (tmp_path / "model").mkdir()
    model = Launch(tmp_path / "model", FILES[0], "nodes:=integrator compensator", *common)
    rig = launch("nodes:=actuator monitor recorder", "composed:=true", *common)
    assert (rig.end(), model.end()) == (0, 0), rig.output + model.output
    assert model.clean() == {"integrator", "compensator"}
    last = model.output.splitlines()[-1]
    assert mentions(last, "rths", "2050", "validity", "monitor's machine")
    assert ExitCode.FINISHED.ending not in last, "its nodes do not count late samples"
    assert not (tmp_path / "model" / "run").exists()
    assert information(tmp_path)["gaps"] == "0"


def test_trip_is_reported_and_recorded(launch, tmp_path):
    run = launch(f"overrides:={SHORT} axes.story_1.limits.stroke=0.001", "directory:=run")
    assert run.end() == 1, run.output
    assert run.clean() == set(NODES)
    *_, indices, last = run.output.splitlines()
    assert mentions(last, "ERROR", "rths")
    assert f"(exit code 3); {RECORDED}" in last
    assert run.output.count("axes.story_1.limits.stroke") == 1, "the cause is reported once"
    assert "rths: story_1: max error 0." in indices
    about = information(tmp_path)
    assert (about["outcome"], about["gaps"]) == ("tripped", "0")
    assert "stroke" in about["reason"]


@pytest.mark.parametrize("whole_group", [True, False], ids=["ctrl_c", "to_launch_only"])
def test_interrupt_ends_all_nodes(launch, tmp_path, whole_group):
    run = launch(f"overrides:={LONG}", "directory:=run")
    run.wait_for_samples()
    (os.killpg if whole_group else os.kill)(run.popen.pid, signal.SIGINT)
    assert run.end() == 1, run.output
    assert run.clean() == set(NODES)
    *_, last = run.output.splitlines()
    assert mentions(last, "WARNING", "rths", "test", "held")
    assert f"interrupted (exit code 130); {RECORDED}" in last
    assert "Traceback" not in run.output
    about = information(tmp_path)
    assert (about["outcome"], about["gaps"]) == ("held", "0")


@pytest.mark.parametrize("role", NODES)
def test_killed_node_ends_test_with_its_name(launch, tmp_path, role):
    run = launch(f"overrides:={LONG}", "directory:=run")
    run.wait_for_samples()
    os.kill(run.pids()[role], signal.SIGKILL)
    assert run.end() == 1, run.output
    assert f"rths: the {role} node died (SIGKILL)" in run.output
    assert run.clean() == set(NODES) - {role}
    assert run.errors() == {(role, "-9")}
    if role != RECORDER:
        assert information(tmp_path)["gaps"] == "0"


def test_nodes_end_with_killed_launch(launch):
    run = launch(f"overrides:={LONG}", "directory:=run")
    run.wait_for_samples()
    pids = run.pids().values()
    run.popen.kill()
    run.popen.wait()
    end = time.monotonic() + 20.0
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_external_actuator_node_replaces_ours(launch):
    run = launch(f"overrides:={SHORT}", "record:=none", "actuator:=false", "run_id:=monday_1", file=FILES[1])
    parameters = {
        "scenario": "chen_ricles_2010",
        "overrides": f"[{SHORT}]",
        "run_id": "monday_1",
        "peers": "[integrator, compensator, actuator, monitor]",
    }
    options = [word for name, value in parameters.items() for word in ("-p", f"{name}:={value}")]
    command = [sys.executable, "-m", "rths_nodes.app.node", ACTUATOR, "--ros-args", "-r", "__ns:=/rths", *options]
    path = os.pathsep.join(filter(None, [str(Path(rths_nodes.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    driver = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, timeout=60, check=False)
    assert driver.returncode == 0
    assert run.end() == 0, run.output
    assert run.clean() == set(NODES) - {ACTUATOR, RECORDER}


SHORT_AXES = "duration=0.4 soft_start=null"


@pytest.mark.parametrize("layout", ["per_axis", "one"])
def test_rig_of_several_actuators(launch, tmp_path, layout):
    run = launch(f"overrides:={SHORT_AXES}", f"actuator_nodes:={layout}", "directory:=run", file=MULTI)
    assert run.end() == 0, run.output
    started = re.findall(r"\[axis-\d+\]: process has finished cleanly", run.output)
    assert len(started) == (3 if layout == "per_axis" else 0)
    assert "ERROR" not in run.output
    about = information(tmp_path)
    assert (about["outcome"], about["gaps"], about["silent"]) == ("finished", "0", "")
    assert about["actuator_nodes"] == layout
    assert_recorded_as_run(tmp_path, "three_independent_axes", SHORT_AXES.split())


def test_case_of_scenario_is_launched(launch, tmp_path):
    arguments = ("scenario:=phillips_spencer_2012", "case:=f", "overrides:=duration=0.2", "actuator_nodes:=one")
    run = launch(*arguments, "directory:=run", file=MULTI)
    assert run.end() == 0, run.output
    assert rths_nodes.read(tmp_path / "run").scenario.name == "phillips_spencer_2012.f"


def test_killed_axis_node_ends_test_with_its_name(launch, tmp_path):
    run = launch("overrides:=soft_start=null", "directory:=run", file=MULTI)
    run.wait_for_samples()
    pids = re.findall(r"\[axis-\d+\]: process started with pid \[(\d+)\]", run.output)
    os.kill(int(pids[1]), signal.SIGKILL)
    assert run.end() == 1, run.output
    assert mentions(run.output, "rths", "story_2/axis", "SIGKILL")
    assert information(tmp_path)["gaps"] == "0"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("scenario:=phillips_spencer_2012",), ("rig", "axes")),
        (("scenario:=phillips_spencer_2012", "case:=g"), ("unknown", "case", "g")),
        (("drivers:=story_9",), ("story_1", "story_2", "story_3")),
        (("drivers:=story_1", "actuator_nodes:=one"), ("known", "none")),
    ],
)
def test_impossible_layout_is_refused(launch, arguments, parts):
    run = launch(*arguments, "record:=none", file=MULTI)
    assert run.end() == 1, run.output
    assert mentions(run.output, *parts)
    assert run.pids() == {}


REACHED = {"configure": "inactive", "cleanup": "unconfigured", "activate": "active"}


def change(role: str, transition: str = "") -> None:
    """Change the state of a node like ``ros2 lifecycle set``; without ``transition`` only discover it."""
    import rclpy
    from lifecycle_msgs.srv import ChangeState, GetState

    def ask(kind, name, request):
        client = operator.create_client(kind, f"/{names.NAMESPACE}/{role}/{name}")
        assert client.wait_for_service(30.0), role
        answer = client.call_async(request)
        rclpy.spin_until_future_complete(operator, answer, executor, timeout_sec=10.0)
        return answer.result()

    with composed.ros_context() as context:
        operator = Node("operator", context=context)
        executor = SingleThreadedExecutor(context=context)
        if not transition:
            assert operator.create_client(GetState, f"/{names.NAMESPACE}/{role}/get_state").wait_for_service(30.0)
            return
        request = ChangeState.Request()
        request.transition.label = transition
        answer = ask(ChangeState, "change_state", request)
        if answer is None:  # the middleware can lose the answer to a client that it has just discovered
            state = ask(GetState, "get_state", GetState.Request())
            assert state.current_state.label == REACHED[transition], role
        else:
            assert answer.success, f"{role} {transition}"


def start_nodes() -> None:
    """Start all nodes; those of the loop are configured twice."""
    for role in NODES:
        change(role, "configure")
    for role in LOOP:
        change(role, "cleanup")
        change(role, "configure")
    for role in NODES:
        change(role, "activate")


def test_operator_starts_test_without_autostart(launch, tmp_path):
    run = launch(f"overrides:={SHORT}", "directory:=run", "autostart:=false")
    start_nodes()
    assert run.end() == 0, run.output
    assert run.clean() == set(NODES)
    assert information(tmp_path)["outcome"] == "finished"


def test_interrupt_ends_nodes_that_were_not_started(launch):
    run = launch("record:=none", "autostart:=false")
    for role in set(NODES) - {RECORDER}:
        change(role)
    os.kill(run.popen.pid, signal.SIGINT)
    assert run.end() == 1, run.output
    *_, last = run.output.splitlines()
    assert mentions(last, "rths", "0", "code 130")
    assert run.errors() == set()


COMPOSED = ("composed:=true", "pace:=realtime", "directory:=run")


@pytest.mark.parametrize("separate", ["", "recorder", "monitor recorder"])
def test_nodes_share_a_process(launch, tmp_path, patience, separate):
    run = launch(f"overrides:={SHORT} {' '.join(patience)}", *COMPOSED, f"separate:={separate}")
    assert ended_well(run), run.output
    assert run.clean() == {"rig", *separate.split()}
    assert RECORDED in run.output.splitlines()[-1]
    about = information(tmp_path)
    assert (about["outcome"], about["gaps"], about["host"]) == ("finished", "0", "composed")
    # a slipped tick is flagged
    assert_recorded_as_run(tmp_path, "chen_ricles_2010", [SHORT, *patience], leave_out="flags")


def test_nodes_of_axes_share_a_process(launch, tmp_path):
    arguments = ("scenario:=three_independent_axes", "actuator_nodes:=per_axis", "namespace:=lab/rig_2")
    run = launch(f"overrides:={SHORT_AXES}", "composed:=true", "directory:=run", *arguments)
    assert run.end() == 0, run.output
    assert run.clean() == {"rig"}
    assert information(tmp_path)["actuator_nodes"] == "per_axis"
    assert_recorded_as_run(tmp_path, "three_independent_axes", SHORT_AXES.split())


def test_trip_ends_composed_test(launch, tmp_path):
    overrides = f"overrides:={SHORT} axes.story_1.limits.stroke=0.001"
    run = launch(overrides, "composed:=true", "separate:=recorder", "directory:=run")
    assert run.end() == 1, run.output
    assert run.clean() == {RECORDER, "rig"}
    last = run.output.splitlines()[-1]
    assert mentions(last, "test", "tripped")
    assert "axes.story_1.limits.stroke" in last
    assert f"(exit code 3); {RECORDED}" in last
    assert information(tmp_path)["gaps"] == "0"


def test_interrupt_holds_composed_test(launch, tmp_path):
    run = launch(f"overrides:={LONG}", "composed:=true", "separate:=recorder", "directory:=run")
    run.wait_for_samples()
    os.killpg(run.popen.pid, signal.SIGINT)
    assert run.end() == 1, run.output
    assert mentions(run.output.splitlines()[-1], "rths", "test", "held")
    assert "Traceback" not in run.output
    about = information(tmp_path)
    assert (about["outcome"], about["gaps"]) == ("held", "0")


@pytest.mark.parametrize("name", ["rig", RECORDER])
def test_killed_process_ends_composed_test(launch, tmp_path, name):
    run = launch(f"overrides:={LONG}", "composed:=true", "separate:=recorder", "directory:=run")
    run.wait_for_samples()
    os.kill(run.pids()[name], signal.SIGKILL)
    assert run.end() == 1, run.output
    assert f"rths: the {name} node died (SIGKILL)" in run.output
    assert "(exit code 1); recording:" in run.output.splitlines()[-1]


def test_operator_starts_composed_test_without_autostart(launch, tmp_path):
    run = launch(f"overrides:={SHORT}", "composed:=true", "directory:=📁/run", "autostart:=false")
    start_nodes()
    assert run.end() == 0, run.output
    assert run.clean() == {"rig"}
    assert information(tmp_path / "📁")["outcome"] == "finished"


def test_waiting_nodes_name_missing_node(launch):
    run = launch(f"overrides:={LONG}", "record:=none", "actuator:=false", file="single_actuator.launch.py")
    run.wait_for(lambda: "waits for /rths/actuator on" in run.output)
    os.kill(run.popen.pid, signal.SIGINT)
    assert run.end() == 1, run.output


INCLUDING = """
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource


def generate_launch_description():
    source = PythonLaunchDescriptionSource({file!r})
    arguments = {{"overrides": {overrides!r}, "directory": "run"}}.items()
    return LaunchDescription(
        [DeclareLaunchArgument("robot"), IncludeLaunchDescription(source, launch_arguments=arguments)]
    )
"""


def test_including_launch_file_has_its_own_arguments(launch, tmp_path):
    ours = str(resource("launch", FILES[0]))
    (tmp_path / "lab.launch.py").write_text(INCLUDING.format(file=ours, overrides=SHORT))
    run = launch("robot:=blue", file=str(tmp_path / "lab.launch.py"))
    assert run.end() == 0, run.output
    assert information(tmp_path)["outcome"] == "finished"


STAND_IN = """#!{python}
import pathlib, signal, sys, time
signals = []
signal.signal(signal.SIGINT, lambda *_: signals.append(1))
pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).mkdir()
pathlib.Path("bag.txt").write_text(" ".join(sys.argv[1:]))
qos = sys.argv[sys.argv.index("--qos-profile-overrides-path") + 1]
pathlib.Path("qos.yaml").write_text(pathlib.Path(qos).read_text())
while not signals:
    time.sleep(0.02)
"""


def stand_in_for_rosbag2(folder: Path) -> dict[str, str]:
    """Create a `ros2 bag record` that only stores its arguments and waits for its end."""
    (folder / "ros2bag").mkdir()
    (folder / "ros2bag" / "__init__.py").touch()
    index = folder / "share" / "ament_index" / "resource_index" / "packages"
    index.mkdir(parents=True)
    (index / "rosbag2_storage_mcap").touch()
    (folder / "bin").mkdir()
    (folder / "bin" / "ros2").write_text(STAND_IN.format(python=sys.executable))
    (folder / "bin" / "ros2").chmod(0o755)
    return {"PYTHONPATH": str(folder), "AMENT_PREFIX_PATH": str(folder), "PATH": str(folder / "bin")}


def test_rosbag2_records_all_topics_and_is_stopped(launch, tmp_path):
    environment = stand_in_for_rosbag2(tmp_path)
    run = launch(
        f"overrides:={SHORT}",
        "record:=rosbag2",
        "namespace:=rig_2",
        "directory:=run",
        "record_topics:=/camera",
        **environment,
    )
    assert run.end() == 0, run.output
    assert run.clean() == set(NODES) - {RECORDER} | {"rosbag2"}
    assert "rths report" not in run.output
    arguments = (tmp_path / "bag.txt").read_text().split()
    options = arguments[: arguments.index("--qos-profile-overrides-path")]
    assert options == ["bag", "record", "-s", "mcap", "-o", str(tmp_path / "run")]
    assert (tmp_path / "qos.yaml").read_text() == stack_files.rosbag2_qos("rig_2")
    assert arguments[arguments.index("--topics") + 1 :] == [
        *(f"/rig_2/{name}" for name in names.TOPICS),
        *names.ALSO_RECORDED,
        "/camera",
    ]


def test_missing_rosbag2_is_reported(launch):
    if shutil.which("ros2") and subprocess.run(["ros2", "bag", "--help"], capture_output=True).returncode == 0:
        pytest.skip("rosbag2 is installed")
    run = launch("record:=rosbag2")
    assert run.end() == 1
    assert "record = rosbag2: needs ros2bag" in run.output
    assert run.pids() == {}
