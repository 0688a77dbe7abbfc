# SPDX-License-Identifier: Apache-2.0
"""Build an FMU (FMI 2.0 or 3.0, co-simulation) from a model in C: description, binary, and archive.

    python build.py frame                 frame.fmu: frame of three stories, FMI 2.0
    python build.py frame --stories 1 --version 3 --out sdof.fmu
    python build.py controller            controller.fmu: compensator
    python build.py brace                 brace.fmu: yielding specimen

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
    """Variable of the model. Its index in the list is its value reference. Local variables are not described."""

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
    start = ", ".join(repr(float(variable.start)) for variable in variables)
    with tempfile.TemporaryDirectory() as folder:
        stubs, library = Path(folder, "stubs.c"), Path(folder, f"{identifier}.so")
        stubs.write_text(stubs_of(headers / f"fmi{version}Functions.h", HERE / f"fmi{version}.c"))
        options = [f"-DVARIABLES={len(variables)}", f"-DSTART={{{start}}}", f'-DTOKEN="{token}"', *defines]
        sources = [model, HERE / f"fmi{version}.c", stubs]
        command = [os.environ.get("CC", "cc"), "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-o", library]
        subprocess.run([*command, *options, f"-I{headers}", f"-I{HERE}", *sources, "-lm"], check=True)
        binaries = "linux64" if version == 2 else f"{platform.machine()}-linux"
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("modelDescription.xml", description(identifier, token, variables, version))
            archive.write(library, f"binaries/{binaries}/{identifier}.so")
    return out


def stubs_of(header: Path, source: Path) -> str:
    """Return C functions that only fail, for the functions of ``header`` that ``source`` does not define."""
    names = re.findall(rf"^\s*{header.stem[:4].upper()}_Export \w+\s+(\w+);", header.read_text(), re.M)
    defined = set(re.findall(r"\b(fmi\d\w+)\(", source.read_text()))
    return "\n".join(f"int {name}(void) {{ return 3; }}" for name in names if name not in defined) + "\n"


def description(identifier: str, token: str, variables: Sequence[Variable], version: int) -> str:
    """Return the text of modelDescription.xml."""
    described = [(index, variable) for index, variable in enumerate(variables) if variable.causality != "local"]
    used_units = dict.fromkeys(variable.unit for _, variable in described if variable.unit)
    units = "".join(
        f"<Unit name={quoteattr(name)}>" + (f"<BaseUnit {UNITS[name]}/>" if name in UNITS else "") + "</Unit>"
        for name in used_units
    )
    lines, outputs = [], []
    for number, (index, (name, causality, unit, start)) in enumerate(described, 1):
        attributes = f'name={quoteattr(name)} valueReference="{index}" causality="{causality}"'
        attributes += ' variability="fixed"' if causality == "parameter" else ""
        values = f" unit={quoteattr(unit)}" if unit else ""
        values += "" if causality == "output" else f' start="{start!r}"'
        if version == 2:
            lines.append(f"<ScalarVariable {attributes}><Real{values}/></ScalarVariable>")
        else:
            lines.append(f"<Float64 {attributes}{values}/>")
        if causality == "output":
            outputs.append(
                f'<Unknown index="{number}"/>' if version == 2 else f'<Output valueReference="{index}"/>'
            )
    if version == 3:
        lines.append(
            '<Float64 name="time" valueReference="9999" causality="independent" variability="continuous"/>'
        )
    structure = f"<Outputs>{''.join(outputs)}</Outputs>" if version == 2 else "".join(outputs)
    token_name = "guid" if version == 2 else "instantiationToken"
    state = "canGetAndSetFMUstate" if version == 2 else "canGetAndSetFMUState"
    simulation = f'<CoSimulation modelIdentifier="{identifier}" canHandleVariableCommunicationStepSize="true"'
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<fmiModelDescription fmiVersion="{version}.0" '
        f'modelName="{identifier}" {token_name}="{token}" generationTool="build.py">\n'
        f'{simulation} {state}="true"/>\n'
        f"<UnitDefinitions>{units}</UnitDefinitions>\n<ModelVariables>\n"
        + "\n".join(lines)
        + "\n</ModelVariables>\n"
        f"<ModelStructure>{structure}</ModelStructure>\n</fmiModelDescription>\n"
    )


def main() -> None:
    """Build the requested model and print its path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("frame", *OTHERS))
    parser.add_argument("--stories", type=int, default=3, help="number of stories of the frame")
    parser.add_argument("--version", type=int, choices=(2, 3), default=2, help="FMI version")
    parser.add_argument("--out", type=Path, help="FMU to write (default: MODEL.fmu in the working directory)")
    options = parser.parse_args()
    name, out = options.model, options.out or Path(f"{options.model}.fmu")
    variables = frame(options.stories) if name == "frame" else OTHERS[name]
    try:
        print(build(HERE / f"{name}.c", variables, out, options.version, [f"-DSTORIES={options.stories}"]))
    except (OSError, subprocess.CalledProcessError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
