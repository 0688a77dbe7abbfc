# SPDX-License-Identifier: Apache-2.0
"""Build an FMU (FMI 2.0 or 3.0, co-simulation) from a model in C: description, binary, and archive.

    python build.py frame                 frame.fmu: three stories, FMI 2.0
    python build.py frame --stories 1 --version 3 --out sdof.fmu
    python build.py controller            controller.fmu, a compensator
    python build.py brace                 brace.fmu, a specimen that yields

The script needs a C compiler (cc, or the environment variable CC), and fmpy, which contains the FMI headers.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

HERE = Path(__file__).resolve().parent

UNITS = {
    "m": 'm="1"',
    "mm": 'm="1" factor="0.001"',
    "m/s": 'm="1" s="-1"',
    "mm/s": 'm="1" s="-1" factor="0.001"',
    "m/s^2": 'm="1" s="-2"',
    "N": 'kg="1" m="1" s="-2"',
    "kN": 'kg="1" m="1" s="-2" factor="1000"',
    "N/m": 'kg="1" s="-2"',
    "kg": 'kg="1"',
    "s": 's="1"',
    "1/s": 's="-1"',
    "Hz": 's="-1" rad="0"',
}
"""Definition of each unit in base units."""


class Variable(NamedTuple):
    """Variable of the model. Its value reference is its index in the list. Local variables are not described."""

    name: str
    causality: str
    unit: str = ""
    start: float = 0.0


def frame(stories: int) -> list[Variable]:
    """Return the variables of frame.c."""
    floors = range(1, stories + 1)
    masses, stiffnesses = (1000.0, 900.0, 800.0), (1.0e6, 9.0e5, 8.0e5)
    return [
        Variable("ground_acceleration", "input", "m/s^2"),
        *(Variable(f"f{i}", "input", "N") for i in floors),
        Variable("alpha", "parameter", "1/s", 0.3),
        Variable("beta", "parameter", "s", 0.0),
        Variable("ground_amplitude", "parameter", "m/s^2"),
        Variable("ground_frequency", "parameter", "Hz", 1.5),
        *(Variable(f"m{i}", "parameter", "kg", masses[(i - 1) % 3]) for i in floors),
        *(Variable(f"k{i}", "parameter", "N/m", stiffnesses[(i - 1) % 3]) for i in floors),
        *(Variable(f"x{i}", "output", "m") for i in floors),
        *(Variable(f"v{i}", "output", "m/s") for i in floors),
        *(Variable(f"a{i}", "output", "m/s^2") for i in floors),
        *(Variable(f"p{i}", "local") for i in (*floors, 0)),
    ]


OTHERS = {
    "controller": [
        Variable("target", "input", "m"),
        Variable("velocity", "input", "m/s"),
        Variable("measured", "input", "m"),
        Variable("delay", "parameter", "s"),
        Variable("gain", "parameter", "1/s"),
        Variable("command", "output", "m"),
        Variable("integral", "output"),
        Variable("before", "local"),
    ],
    "brace": [
        Variable("displacement", "input", "m"),
        Variable("velocity", "input", "m/s"),
        Variable("stiffness", "parameter", "N/m", 5.0e5),
        Variable("yield_force", "parameter", "N", 5.0e3),
        Variable("damping", "parameter", "N.s/m"),
        Variable("force", "output", "N"),
        Variable("slip", "local"),
    ],
}
"""Variables of each model, in the order of its C file."""


def build(
    model: Path, variables: Sequence[Variable], out: Path, version: int = 2, defines: Sequence[str] = ()
) -> Path:
    """Build the FMU ``out`` from the file ``model``. Raises CalledProcessError if the compiler fails."""
    import fmpy

    headers = Path(fmpy.__file__).parent / "c-code"
    token = "{" + hashlib.sha256(f"{model.read_text()}{variables}{defines}".encode()).hexdigest()[:32] + "}"
    identifier = model.stem
    start = ", ".join(repr(float(each.start)) for each in variables)
    with tempfile.TemporaryDirectory() as folder:
        rest, library = Path(folder, "rest.c"), Path(folder, f"{identifier}.so")
        rest.write_text(not_there(headers / f"fmi{version}Functions.h", HERE / f"fmi{version}.c"))
        words = [f"-DVARIABLES={len(variables)}", f"-DSTART={{{start}}}", f'-DTOKEN="{token}"', *defines]
        sources = [model, HERE / f"fmi{version}.c", rest]
        command = [os.environ.get("CC", "cc"), "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-o", library]
        subprocess.run([*command, *words, f"-I{headers}", f"-I{HERE}", *sources, "-lm"], check=True)
        binaries = "linux64" if version == 2 else f"{platform.machine()}-linux"
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("modelDescription.xml", description(identifier, token, variables, version))
            archive.write(library, f"binaries/{binaries}/{identifier}.so")
    return out


def not_there(header: Path, source: Path) -> str:
    """Return C functions that only fail, for functions of the standard that the model does not need."""
    names = re.findall(rf"^\s*{header.stem[:4].upper()}_Export \w+\s+(\w+);", header.read_text(), re.M)
    there = set(re.findall(r"\b(fmi\d\w+)\(", source.read_text()))
    return "\n".join(f"int {name}(void) {{ return 3; }}" for name in names if name not in there) + "\n"


def description(identifier: str, token: str, variables: Sequence[Variable], version: int) -> str:
    """Return the text of modelDescription.xml."""
    told = [(place, each) for place, each in enumerate(variables) if each.causality != "local"]
    used = dict.fromkeys(each.unit for _, each in told if each.unit)
    units = "".join(
        f"<Unit name={quoteattr(name)}>" + (f"<BaseUnit {UNITS[name]}/>" if name in UNITS else "") + "</Unit>"
        for name in used
    )
    lines, outputs = [], []
    for number, (place, each) in enumerate(told, 1):
        unit = f" unit={quoteattr(each.unit)}" if each.unit else ""
        of = f'name={quoteattr(each.name)} valueReference="{place}" causality="{each.causality}"'
        of += ' variability="fixed"' if each.causality == "parameter" else ""
        start = "" if each.causality == "output" else f' start="{each.start!r}"'
        if version == 2:
            lines.append(f"<ScalarVariable {of}><Real{unit}{start}/></ScalarVariable>")
        else:
            lines.append(f"<Float64 {of}{unit}{start}/>")
        if each.causality == "output":
            outputs.append(
                f'<Unknown index="{number}"/>' if version == 2 else f'<Output valueReference="{place}"/>'
            )
    if version == 3:
        lines.append(
            '<Float64 name="time" valueReference="9999" causality="independent" variability="continuous"/>'
        )
    structure = f"<Outputs>{''.join(outputs)}</Outputs>" if version == 2 else "".join(outputs)
    named = "guid" if version == 2 else "instantiationToken"
    state = "canGetAndSetFMUstate" if version == 2 else "canGetAndSetFMUState"
    simulation = f'<CoSimulation modelIdentifier="{identifier}" canHandleVariableCommunicationStepSize="true"'
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<fmiModelDescription fmiVersion="{version}.0" '
        f'modelName="{identifier}" {named}="{token}" generationTool="build.py">\n{simulation} {state}="true"/>\n'
        f"<UnitDefinitions>{units}</UnitDefinitions>\n<ModelVariables>\n"
        + "\n".join(lines)
        + "\n</ModelVariables>\n"
        f"<ModelStructure>{structure}</ModelStructure>\n</fmiModelDescription>\n"
    )


def main() -> None:
    """Build one of the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("frame", *OTHERS))
    parser.add_argument("--stories", type=int, default=3, help="stories of the frame")
    parser.add_argument("--version", type=int, choices=(2, 3), default=2, help="version of FMI")
    parser.add_argument("--out", type=Path, help="FMU to write; default: MODEL.fmu in the working folder")
    options = parser.parse_args()
    name, out = options.model, options.out or Path(f"{options.model}.fmu")
    variables = frame(options.stories) if name == "frame" else OTHERS[name]
    print(build(HERE / f"{name}.c", variables, out, options.version, [f"-DSTORIES={options.stories}"]))


if __name__ == "__main__":
    main()
