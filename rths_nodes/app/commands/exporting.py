# SPDX-License-Identifier: Apache-2.0
"""``rths export``: recordings as files for other programs and archives."""

from __future__ import annotations

import argparse
from pathlib import Path

from rths_nodes.app.commands import terminal
from rths_nodes.core.errors import ConfigError
from rths_nodes.loop.outcomes import ExitCode
from rths_nodes.recording.exporting import FORMS

ARCHIVE = "designsafe"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", nargs="+", help="folder of a recording; several: each under its own name")
    parser.add_argument("--to", metavar="FOLDER", required=True, help="a new folder, or an empty one")
    words = (
        "csv: text in columns; mat: MATLAB; hdf5: with h5py; designsafe: the folders of a hybrid simulation as "
        "the archive DesignSafe has them; default: %(default)s"
    )
    parser.add_argument("--form", choices=(*FORMS, ARCHIVE), default=FORMS[0], help=words)


def run(options: argparse.Namespace) -> int:
    from rths_nodes.app.commands.report import write as write_page
    from rths_nodes.recording import exporting
    from rths_nodes.recording.reading import read_run

    folder, paths = Path(options.to), [Path(each) for each in options.recording]
    names = [path.name or path.resolve().name for path in paths]
    if len(set(names)) < len(names):
        raise ConfigError(f"two recordings are called alike: {', '.join(names)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--to {folder}: is there already, and not an empty folder")
    found = {name: read_run(path) for name, path in zip(names, paths, strict=True)}
    for each in found.values():
        terminal.tell(each.notes)
    if options.form == ARCHIVE and len({each.scenario.name for each in found.values()}) > 1:
        told = ", ".join(f"{name} {each.scenario.name}" for name, each in found.items())
        raise ConfigError(f"--form {ARCHIVE}: is of one scenario; these are of: {told}")
    with terminal.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if options.form == ARCHIVE:
            for path in exporting.write_archive(found, folder, lambda test, page: write_page(test, page, False)):
                print(path)
            return ExitCode.FINISHED
        for name, each in found.items():
            for path in exporting.write(each, folder / name, options.form):
                print(path)
    return ExitCode.FINISHED
