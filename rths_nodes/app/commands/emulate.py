# SPDX-License-Identifier: Apache-2.0
"""``rths emulate``: emulate a rig for tests that use the port ``udp``."""

from __future__ import annotations

import json
import multiprocessing
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress

import numpy as np

from rths_nodes.app import emulation
from rths_nodes.app.commands import arguments, terminal
from rths_nodes.core.addresses import check_address, check_port
from rths_nodes.core.errors import ConfigError
from rths_nodes.core.samples import Measurement
from rths_nodes.laboratory.calibration import Channel
from rths_nodes.laboratory.ports.watcher_sensors import shown
from rths_nodes.loop.interrupts import orderly_stop
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.loop.realtime import ABOVE, real_time
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.files import override
from rths_nodes.loop.scenario.schema import Scenario
from rths_nodes.loop.watch import WatchSection


def emulate_arguments(add: arguments.Arguments) -> None:
    add.scenario()
    add("--address", "address of this machine to listen on; default: port.address")
    add("--port", "UDP port to listen on (0: any free port); default: port.port", type=int)
    add.flags(
        own_clock="refuse lockstep: as on a real rig, ticks do not wait for commands",
        again="accept a new session after each session",
    )
    kinds = "; ".join(f"{kind}: {text}" for kind, (_, text) in emulation.MISBEHAVIOURS.items())
    add.several("--misbehave KIND@SAMPLE[:N]", f"injected fault. {kinds}")
    kinds = "; ".join(f"{kind}: {text}" for kind, text in emulation.PLANTED.items())
    text = f"fault to plant, which rths commission must detect. {kinds}"
    add.several("--plant FAULT", text, choices=emulation.PLANTED)
    add.flags(no_specimen="emulate a rig without specimens, as rths commission requires")
    text = (
        "address of a watcher (rths watch) that receives simulated readings of its own sensors; requires a "
        "rig file with the section watch"
    )
    add("--sensors ADDRESS", text)
    add.json()


def emulate_command(options: arguments.Options) -> int:
    for value, option in ((options.address, "--address"), (options.sensors, "--sensors")):
        if value:
            check_address(value, option)
    if options.port is not None:
        check_port(options.port, "--port")
    scenario = arguments.scenario(options)
    if options.address and hasattr(scenario.port, "address"):
        scenario = override(scenario, [f"port.address={options.address}"])
    if options.no_specimen:
        scenario = free(scenario)
    plans = [emulation.parse(plan) for plan in options.misbehave]
    emulator = emulation.Emulator(scenario, options.port, options.own_clock, plans, options.plant)
    output = scenario.rig_file.warning.output if scenario.rig_file and scenario.rig_file.warning else ""
    emulator.warned = lambda on: terminal.print_now(f"{output}: {'on' if on else 'off'}")
    address, port = emulator.address
    code = ExitCode.FINISHED
    with closing(emulator), _watched(emulator, options), orderly_stop() as interrupted:
        _say(
            options,
            f"{scenario.name}: emulated at {address}:{port}, {scenario.servo_rate:g} Hz; the rig is at rest "
            f"within {1e3 * emulator.rest:.0f} ms after the last command",
            {"address": address, "port": port, "rest_s": emulator.rest},
        )
        threading.Thread(target=_listen, args=(emulator.switches,), name="switches", daemon=True).start()
        while (session := emulator.serve(interrupted)) is not None:
            code = ExitCode.FINISHED if session.in_order else ExitCode.TRIPPED
            _say(options, f"{scenario.name}: {_summary(session)}", session._asdict())
            if not options.again or interrupted():
                break
    return code


@contextmanager
def _watched(emulator: emulation.Emulator, options: arguments.Options) -> Iterator[None]:
    """During the ``with`` block, send the rig's true state as sensor readings to the watcher (``--sensors``)."""
    if not options.sensors:
        yield
        return
    section = files.load_rig(options.rig).watch if options.rig else None
    if section is None:
        raise ConfigError("--sensors: requires a rig file (--rig) with the section watch")
    axes = emulator.scenario.axes.values()
    names = [axis.rig_axis.name if axis.rig_axis is not None else "" for axis in axes]
    places = [names.index(name) for name in section.axes]
    try:
        far = socket.gethostbyname(options.sensors), section.sensors.port
    except OSError as error:
        raise ConfigError(f"--sensors {options.sensors}: unknown host ({error.strerror})") from error
    context = multiprocessing.get_context("spawn")
    shared = context.RawArray("d", 2 * len(places))

    def take(true: Measurement) -> None:
        shared[:] = [values[axis] for axis in places for values in (true.displacement, true.force)]

    take(emulator.true)
    emulator.shown_to = take
    values = (section, far, shared, emulator.scenario.seed, os.getpid())
    process = context.Process(target=_show, args=values, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def _listen(switches: emulation.Switches) -> None:
    with suppress(OSError, ValueError):  # the terminal belongs to another job, or stdin is closed
        for line in sys.stdin:
            if not line.strip():
                continue
            try:
                switches.turn(line)
                print(f"at the rig: {line.strip()}", file=sys.stderr, flush=True)
            except ConfigError as error:
                print(str(error), file=sys.stderr, flush=True)


def _summary(session: emulation.Session) -> str:
    counts = ", ".join(f"{count} {name}" for name, count in session.counts.items() if count)
    return f"{session.samples} samples, then {session.reason}; {counts}"


def _say(options: arguments.Options, text: str, data: dict[str, object]) -> None:
    print(json.dumps(data) if options.json else text, flush=True)


FREE = "{type: kelvin_voigt, stiffness: 1.0, damping: 0.0}"
"""Model of an axis without a specimen. A stiffness is required; its force is too small to be measured."""


def free(scenario: Scenario) -> Scenario:
    if scenario.rig is not None:
        raise ConfigError(
            "--no-specimen: requires a scenario without the section rig, whose model includes the specimens"
        )
    return override(scenario, [f"axes.{name}.specimen={FREE}" for name in scenario.axes])


def _show(section: WatchSection, far: tuple[str, int], true: Sequence[float], seed: int, parent: int) -> None:
    session, noise = secrets.randbelow(2**32 - 1) + 1, np.random.default_rng(seed)
    period, began, counter = 1.0 / section.sensors.rate, time.monotonic(), 0
    channels = [(axis.displacement, axis.force) for axis in section.axes.values()]
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out,
        suppress(KeyboardInterrupt),
        real_time(True, ABOVE),
    ):
        while os.getppid() == parent:
            time.sleep(max(0.0, began + counter * period - time.monotonic()))
            counter = max(counter, int((time.monotonic() - began) / period))
            rows = [
                (_number(displacement, true[2 * axis], noise), _number(force, true[2 * axis + 1], noise))
                for axis, (displacement, force) in enumerate(channels)
            ]
            with suppress(OSError):  # treat the datagram as lost
                out.sendto(shown(session, counter, rows), far)
            counter += 1


def _number(channel: Channel, true: float, noise: np.random.Generator) -> float:
    value = true + channel.noise_rms * channel.unit_si * float(noise.standard_normal())
    if channel.step_si:
        value = round(value / channel.step_si) * channel.step_si
    return value / channel.gain
