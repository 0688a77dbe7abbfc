"""A recording -> a Run, without ROS."""

from __future__ import annotations

import os

from rths_nodes.core.errors import ConfigError
from rths_nodes.core.flat_names import unflatten
from rths_nodes.core.wire.plain import decode
from rths_nodes.loop.scenario import files
from rths_nodes.loop.scenario.assembly import Assembly
from rths_nodes.loop.timing import gathered
from rths_nodes.recording import bag
from rths_nodes.recording.run import Collector, Run


def read_run(path: str | os.PathLike[str]) -> Run:
    """The Run of the recording at ``path``. Raises ConfigError when it is none of ours."""
    recording = bag.read(os.fspath(path))
    if "scenario" not in recording.information:
        raise ConfigError(f"{path}: not a recording of a hybrid simulation (there is no scenario in it)")
    scenario = files.from_text(recording.information["scenario"], f"{path}: scenario")
    assembly = Assembly(scenario)
    codec = assembly.codec()
    collector = Collector(scenario, assembly.names)
    information = dict(recording.information)
    numbers: dict[str, float] = {}
    for topic, data, _ in recording.messages():
        kind = topic.rpartition("/")[2]
        if kind == "measurement":
            collector.measurement(codec.unpack_measurement(data)[0])
        elif kind == "true_state":
            collector.truth(codec.unpack_measurement(data)[0])
        elif kind == "command":
            collector.command(codec.unpack_command(data)[0])
        elif kind == "compensator_state":
            sample, values, _ = codec.unpack_state(data)
            collector.state(sample, values.tolist())
        elif kind == "target":
            collector.target(codec.unpack_target(data)[0])
        elif kind == "summary":
            summary = decode("Summary", data)
            numbers.update(zip(summary["names"], summary["values"], strict=True))
    return collector.run(information, unflatten(numbers, "metrics"), gathered(numbers))
