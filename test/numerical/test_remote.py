# SPDX-License-Identifier: Apache-2.0
"""A client at the other end of the wire drives the rig."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generic_client import (
    LENGTH,
    STORIES,
    GenericClient,
    analysis,
    beside,
    connected,
    free_port,
    greeting,
    newmark,
    vector,
)
from messages import mentions, naming
from remote_rig import SCENARIO, STROKE, driven, scenario, server, welcome

from rths_nodes.app import hosts
from rths_nodes.app.cli import main
from rths_nodes.app.studies.prediction import reproduced
from rths_nodes.core.errors import ConfigError
from rths_nodes.recording.reading import read_run


def test_the_frame_is_that_in_one_piece() -> None:
    port = free_port()
    with beside(analysis, port, 100) as found:
        result = hosts.run(scenario(port))
    assert (result.outcome, result.exit_code) == ("finished", 0), result.reason
    whole = newmark(100, 0.01, 3000.0, lambda *_: 0.0, STORIES[0])
    assert np.abs(found[0] - whole).max() < 1e-12 * np.abs(whole).max()
    run = result.read()
    offset = 9000.0 / STORIES[0]
    np.testing.assert_allclose(run.dof_displacement[1:, 0], whole[:, 0] - offset, rtol=0.0, atol=1e-15)
    assert np.isnan(result.metrics["hsem_percent"]), "nobody knows the work of the ground here"


def test_velocity_and_acceleration_are_those_of_the_displacements() -> None:
    port = free_port()
    with beside(analysis, port, 100):
        run = hosts.run(scenario(port)).read()
    x, dt = run.dof_displacement[:, 0], 0.01
    curvature = np.diff(x, 2) / dt**2
    np.testing.assert_allclose(run.dof_velocity[2:, 0], np.diff(x)[1:] / dt + 0.5 * dt * curvature, atol=1e-12)
    np.testing.assert_allclose(run.exact_acceleration[1:, 0], curvature, atol=1e-9)


def test_what_the_client_sends_behind_the_axes_is_observed_and_gets_no_force() -> None:
    port, n = free_port(), 3
    told: list[Any] = []

    def client(port: int) -> None:
        with connected(port) as wire:
            wire.sendall(greeting(n))
            for step in range(1, 31):
                x = [1e-4 * step, 3e-4 * step, -2e-4 * step]
                wire.sendall(vector(3, *x, *np.zeros(6), 0.01 * step) + vector(10))
                found = b""
                while len(found) < 8 * LENGTH:
                    found += wire.recv(8 * LENGTH)
                told.append(np.frombuffer(found)[:4])
                wire.sendall(vector(5))
            wire.sendall(vector(99))

    given = ("integrator.static_steps=0", "duration=0.3", "observed=[roof, floor_2]")
    with beside(client, port):
        result = hosts.run(scenario(port, *given), keep=True)
    assert result.outcome == "finished", result.reason
    run = result.read()
    assert run.dof_names == ("story_1", "roof", "floor_2")
    steps = np.arange(31.0)[:, None]
    np.testing.assert_allclose(run.dof_displacement, steps * [1e-4, 3e-4, -2e-4], rtol=0.0, atol=1e-15)
    np.testing.assert_allclose(np.array(told), 1e6 * 1e-4 * steps[1:] * [1.0, 0.0, 0.0, 0.0], rtol=1e-9)
    assert result.metrics["max_displacement_m"] == pytest.approx(30 * 3e-4)
    assert set(result.metrics) == set(moved_alone(30))


def moved_alone(steps: int) -> dict[str, Any]:
    """Metrics of the same test where nothing is observed."""
    port = free_port()
    with beside(driven(steps, lambda client, _: client.die()), port):
        return dict(hosts.run(scenario(port, f"duration={0.01 * steps}")).metrics)


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_every_host_gives_the_same_to_the_bit(host: str, tmp_path: Path) -> None:
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    histories = []
    for each in ("embedded", host):
        port = free_port()
        with beside(analysis, port, 100) as found:
            result = hosts.run(scenario(port), host=each, record=tmp_path / each)
        assert result.outcome == "finished", result.reason
        run = result.read()
        assert run.integrator["client_steps"] == 100
        assert run.integrator["static_stage"] == {"displacement": [0.009], "force": [9000.0]}
        histories.append((found[0], run.dof_displacement, run.force, run.command))
    for one, other in zip(*histories, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_the_client_did_is_not_computed_again(tmp_path: Path) -> None:
    port, record = free_port(), tmp_path / "run"
    with beside(analysis, port, 100):
        hosts.run(scenario(port), record=record)
    with pytest.raises(ConfigError, match=naming("integrator", "127.0.0.1", port)):
        reproduced(read_run(record))


def test_a_report_says_that_the_external_force_is_unknown(tmp_path: Path) -> None:
    port, record = free_port(), tmp_path / "run"
    with beside(analysis, port, 100):
        hosts.run(scenario(port), record=record)
    assert main(["report", str(record), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "story_1 9 mm, 9000 N" in page
    assert mentions(page, "client", "input")


def test_matrices_are_told_column_by_column() -> None:
    k = [[3.0, -1.0, 0.0], [-1.0, 2.0, 7.0], [0.0, 7.0, 4.0]]
    remote, port = server({"experimental_stiffness": k}, n=3)

    def ask(port: int) -> Any:
        with connected(port) as client:
            client.sendall(greeting(3))
            client.sendall(vector(12))
            found = b""
            while len(found) < 8 * LENGTH:
                found += client.recv(8 * LENGTH)
            client.sendall(vector(3, *np.zeros(9), 0.01) + vector(10))
            return np.frombuffer(found)[:9].reshape((3, 3), order="F")

    with beside(ask, port) as found:
        welcome(remote)
    remote.close()
    np.testing.assert_array_equal(found[0], k)


@pytest.mark.nodes
@pytest.mark.parametrize("host", ["composed", "processes"])
def test_in_real_time_late_answers_are_bridged(host: str) -> None:
    """An answer takes longer than a step now and then, and nothing else waits for it.

    So slow a motion stays within the limits wherever the bridges take it while the machine does something else.
    """
    pytest.importorskip("rclpy", reason="ROS 2 is not installed here")
    port = free_port()

    def late(client: GenericClient, t: float) -> None:
        for step in range(1, 40):
            time.sleep(0.015 if step % 5 == 0 else 0.0)
            client.trial(1e-6 * step, 0.0, 0.0, t + 0.01 * step)
            client.ask(10)
            client.commit()

    patient = ["bridge.max_bridge=1", "heartbeat.monitor=5", "heartbeat.recorder=5"]
    with beside(driven(0, late), port):
        result = hosts.run(scenario(port, "duration=0.39", *patient), host=host, pace="realtime")
    assert result.outcome == "finished", result.reason
    assert result.timing["bridged"] > 20


def test_the_command_says_what_it_waits_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port, file = free_port(), tmp_path / "remote.yaml"
    file.write_text(SCENARIO.format(port=port, more="connect_within: 0.1", stroke=STROKE))
    assert main(["run", str(file)]) == 2
    said = capsys.readouterr().err
    assert mentions(said, "rths", "127.0.0.1", port)
    assert mentions(said, "127.0.0.1", port, "0.1 s")
