# SPDX-License-Identifier: Apache-2.0
"""The files that a scenario names, on its way into a test: known by what they contain, and copied."""

from __future__ import annotations

from pathlib import Path

from rths_nodes.core.inputs import FOLDER, named_files, replace_files
from rths_nodes.core.validation import from_data
from rths_nodes.loop.scenario.schema import Scenario


def file_hashes(scenario: Scenario) -> dict[str, str]:
    return {each.place: each.hash() for each in named_files(Scenario, scenario.data())}


def kept(scenario: Scenario, folder: Path) -> Scenario:
    """The same with copies of its files in place of them: ``inputs/<hash>`` below the ``folder`` of a test.

    What is a copy already is looked at again. Raises ConfigError where a file cannot be read or copied, and where
    a copy has changed.
    """
    data, place = scenario.data(), folder.absolute() / FOLDER
    replace_files(Scenario, data, lambda named: named.copy(place))
    return from_data(Scenario, data)
