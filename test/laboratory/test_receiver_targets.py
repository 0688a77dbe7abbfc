# SPDX-License-Identifier: Apache-2.0
"""The receiver on other processors: the same bits, no library, nothing undefined, and what its ticks cost."""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from messages import mentions

import rths_nodes
from rths_nodes.core.samples import EMPTY
from rths_nodes.laboratory import receiver as module
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head

if not any(map(shutil.which, ("cc", "gcc", "clang"))):
    pytest.skip("no C compiler here", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "examples" / "udp_target"
PAGE = ROOT / "doc" / "receiver.md"

FOREIGN = {
    "aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
    "arm": ("arm-linux-gnueabihf-gcc", "qemu-arm", "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross"),
    "powerpc": ("powerpc-linux-gnu-gcc", "qemu-ppc", "gcc-powerpc-linux-gnu libc6-dev-powerpc-cross"),
    "s390x": ("s390x-linux-gnu-gcc", "qemu-s390x", "gcc-s390x-linux-gnu libc6-dev-s390x-cross"),
}
"""Compiler, emulator, and packages of Debian; the last two are big-endian."""

SOFTWARE_REALS = "-mthumb -march=armv7-a -mfloat-abi=soft --specs=rdimon.specs -DRTHS_FREESTANDING"
"""Thumb-2 and doubles in software, as on a Cortex-M4; that one itself qemu-user does not run."""


def needs(packages: str, *programs: str) -> None:
    """Skip where a program is missing."""
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here: apt install {packages}")


def make(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``make`` in a copy of the receiver's folder."""
    needs("make", "make")
    if not (folder / "Makefile").exists():
        shutil.copytree(TARGET, folder, dirs_exist_ok=True)
    words = (*words, *(f"{name}={value}" for name, value in variables.items()))
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(["make", *words], cwd=folder, env=env, capture_output=True, text=True, check=False)


def passes(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def vectors(said: str) -> str:
    """The number of all that the receiver has done."""
    (found,) = re.findall(r"^vectors: ([0-9a-f]{16})$", said, re.M)
    return found


# -- the same bits everywhere


def test_the_vectors_are_those_of_the_tested_receiver(tmp_path: Path) -> None:
    text, said = (TARGET / "hostile.c").read_text(), passes(make(tmp_path, "vectors"))
    stated = re.findall(r"RTHS_VECTORS\w* 0x([0-9a-f]+)u /", text)
    assert stated == [vectors(said), *re.findall(r"^in newtons: ([0-9a-f]{16})$", said, re.M)]
    assert stated[0] == "ed0fc5413077e61d", "axes that follow displacements: as before there were force loops"


def test_other_bits_than_the_tested_ones_are_told(tmp_path: Path) -> None:
    make(tmp_path, "clean")
    source = tmp_path / "rths_target.c"
    text = source.read_text()
    assert "halved < 24;" in text
    source.write_text(text.replace("halved < 24;", "halved < 25;"))
    done = make(tmp_path, "vectors")
    assert done.returncode != 0
    assert mentions(done.stdout, "version", "receiver")


FLAGS = ("-O0", "-O3", "-O2 -DRTHS_FREESTANDING")
FEWER = "100"
"""Rounds of the vectors that are compared with ours, in place of the 500 whose numbers are stated."""


def fewer(folder: Path, **variables: str) -> list[str]:
    """The numbers of so many rounds, of displacements and with force loops."""
    said = passes(make(folder, "vectors", ROUNDS=FEWER, **variables))
    found = re.findall(r"^(?:vectors|in newtons): ([0-9a-f]{16})$", said, re.M)
    assert len(found) == 2
    return found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return fewer(tmp_path_factory.mktemp("here"))


@pytest.mark.parametrize("flags", FLAGS)
def test_neither_optimisation_nor_a_missing_library_changes_a_bit(
    tmp_path: Path, flags: str, here: list[str]
) -> None:
    assert fewer(tmp_path, CFLAGS=flags) == here


def foreign(name: str) -> dict[str, str]:
    """Variables of ``make`` for another processor; skips where it cannot be emulated."""
    compiler, emulator, packages = FOREIGN[name]
    needs(f"qemu-user {packages}", compiler, emulator)
    return {"CC": compiler, "RUN": emulator, "LDFLAGS": "-static"}


def test_another_compiler_gives_the_same_bits(tmp_path: Path, here: list[str]) -> None:
    needs("clang", "clang")
    assert fewer(tmp_path, CC="clang") == here


@pytest.mark.parametrize("name", ["aarch64", "arm", "powerpc"])
def test_another_processor_gives_the_same_bits(tmp_path: Path, name: str, here: list[str]) -> None:
    assert fewer(tmp_path, CFLAGS="-O2", **foreign(name)) == here


@pytest.mark.parametrize("name", FOREIGN)
def test_another_processor_without_a_library_gives_the_same_bits(
    tmp_path: Path, name: str, here: list[str]
) -> None:
    assert fewer(tmp_path, CFLAGS="-O3 -DRTHS_FREESTANDING", **foreign(name)) == here


@pytest.mark.soak
@pytest.mark.parametrize("flags", FLAGS)
def test_any_build_gives_the_stated_vectors(tmp_path: Path, flags: str) -> None:
    passes(make(tmp_path, "vectors", CFLAGS=flags))


@pytest.mark.soak
@pytest.mark.parametrize("flags", ["-O2", "-O3 -DRTHS_FREESTANDING"])
@pytest.mark.parametrize("name", FOREIGN)
def test_another_processor_gives_the_stated_vectors(tmp_path: Path, name: str, flags: str) -> None:
    passes(make(tmp_path, "vectors", CFLAGS=flags, **foreign(name)))


def test_doubles_in_software_give_the_same_bits(tmp_path: Path, here: list[str]) -> None:
    """Compiled without an operating system, as for a microcontroller."""
    needs("gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-user", "arm-none-eabi-gcc", "qemu-arm")
    if not Path("/usr/lib/arm-none-eabi/lib/rdimon.specs").exists():
        pytest.skip("no newlib here: apt install libnewlib-arm-none-eabi")
    assert fewer(tmp_path, CC=f"arm-none-eabi-gcc {SOFTWARE_REALS}", RUN="qemu-arm") == here


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="flags of another processor")
def test_a_processor_that_flushes_small_numbers_to_zero_gives_the_same_bits(tmp_path: Path) -> None:
    """Real-time kernels often let it: linked with -ffast-math, but not compiled so."""
    needs("gcc", "gcc")
    passes(make(tmp_path, CC="gcc"))
    plain = ["gcc", "-std=c99", "-O2", "-ffp-contract=off"]
    subprocess.run([*plain, "-c", "hostile.c"], cwd=tmp_path, check=True)
    words = ["gcc", "-ffast-math", "hostile.o", "rths_target.o", "-lm", "-o", "flushed"]
    subprocess.run(words, cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "flushed"], check=False).returncode == 0


# -- a rig that is a process of its own


LIMITS = ("0.25", "2.0", "20.0", "1.7e6")
"""Stroke, velocity, acceleration, force: those of the axis below."""

SPRING = [
    "axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6e6, damping: 0.0}",
    "compensator={type: none}",
    "axes.story_1.limits={stroke: 0.25, velocity: 2.0, force: 1.7e6, deceleration: 20.0}",
    "duration=3",
]


def free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind(("127.0.0.1", 0))
        found: int = line.getsockname()[1]
        return found


@pytest.mark.parametrize(
    "name",
    ["here", "aarch64", "powerpc"],
)
def test_a_whole_test_against_the_loop_for_linux_is_that_of_the_simulator(tmp_path: Path, name: str) -> None:
    """A spring that goes where it is led, seen one sample later: the simulator's pure delay of a sample."""
    run, variables = [], {}
    if name != "here":
        compiler, emulator, packages = FOREIGN[name]
        needs(f"qemu-user {packages}", compiler, emulator)
        run, variables = [emulator], {"CC": compiler, "LDFLAGS": "-static"}
    passes(make(tmp_path, "linux_loop", **variables))
    port = free_udp_port()
    words = [*run, str(tmp_path / "linux_loop"), str(port), "1024", *LIMITS, "7.6e6"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as rig:
        try:
            assert rig.stdout is not None
            assert rig.stdout.readline() == "ready\n"
            there = f"port={{type: udp, emulator: true, port: {port}}}"
            far = rths_nodes.run("chen_ricles_2010", [*SPRING, there])
            said = rig.communicate(timeout=20.0)[0]
        finally:
            rig.kill()
    assert re.fullmatch(r"reason 2, \d+ samples, 0 bridged\n", said)
    late = f"axes.story_1.actuator={{type: pure_delay, delay: {1.0 / 1024.0!r}}}"
    near = rths_nodes.run("chen_ricles_2010", [*SPRING, late])
    assert np.abs(near.dof_displacement).max() > 0.02
    np.testing.assert_allclose(far.dof_displacement, near.dof_displacement, rtol=0.0, atol=1e-15)


# -- freestanding


COMPILERS = {
    "here": ("cc", "gcc", set()),
    "cortex-m4": ("arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb", "gcc-arm-none-eabi", {"__aeabi_"}),
    "cortex-m7": (
        "arm-none-eabi-gcc -mcpu=cortex-m7 -mthumb -mfpu=fpv5-d16 -mfloat-abi=hard",
        "gcc-arm-none-eabi",
        {"__aeabi_"},
    ),
    "aarch64": ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu", set()),
    "arm": ("arm-linux-gnueabihf-gcc", "gcc-arm-linux-gnueabihf", {"__aeabi_"}),
    "powerpc": ("powerpc-linux-gnu-gcc", "gcc-powerpc-linux-gnu", {"__fix", "__float"}),
    "s390x": ("s390x-linux-gnu-gcc", "gcc-s390x-linux-gnu", set()),
}
"""Compiler with its processor, package, and beginnings of names of the compiler's own arithmetic."""


@pytest.mark.parametrize("name", COMPILERS)
def test_it_compiles_without_a_warning_and_needs_no_library(tmp_path: Path, name: str) -> None:
    compiler, packages, own = COMPILERS[name]
    program = compiler.split()[0]
    symbols = program.removesuffix("gcc") + "nm" if program != "cc" else "nm"
    needs(packages, program, symbols)
    said = passes(make(tmp_path, "freestanding", CC=compiler))
    for warning in ("all", "extra", "conversion", "shadow", "double-promotion", "error"):
        assert f"-W{warning} " in said
    words = [symbols, "-u", tmp_path / "freestanding.o"]
    needed = set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()) - {"U"}
    # a C compiler asks for these four of every environment
    needed -= {"memcpy", "memset", "memmove", "memcmp"}
    assert [each for each in needed if not any(each.startswith(begin) for begin in own)] == []


def test_only_the_headers_of_a_freestanding_compiler_are_needed() -> None:
    text = (TARGET / "rths_target.c").read_text() + (TARGET / "rths_target.h").read_text()
    hosted = re.search(r"#if !defined\(RTHS_FREESTANDING\).*?#else", text, re.S)
    assert hosted is not None
    included = re.findall(r"#include <(.*?)>", text.replace(hosted.group(), ""))
    assert set(included) <= {"float.h", "stddef.h", "stdint.h"}


def test_a_program_in_another_language_finds_its_names(tmp_path: Path) -> None:
    """The header is C++, too: TwinCAT, and S-functions in C++."""
    needs("g++", "g++")
    source = tmp_path / "rig.cpp"
    source.write_text(
        '#include "rths_target.h"\nint main() { static rths_target target; static rths_config config;\n'
        "double at[8] = {0};\n"
        "return rths_init(&target, &config, at) == -RTHS_FIELD_AXES ? rths_self_test() : 9; }\n"
    )
    strict = ["-std=c++11", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", f"-I{TARGET}"]
    passes(make(tmp_path / "target"))
    objects = [str(tmp_path / "target" / "rths_target.o")]
    subprocess.run(["g++", *strict, source, *objects, "-lm", "-o", tmp_path / "rig"], check=True)
    assert subprocess.run([tmp_path / "rig"], check=False).returncode == 0


BEGUN = """
int begin(void);
int begin(void) {
  static const double position[1] = {0.0};
  static rths_config config;
  config.axes = 1; config.period_ns = 1000000u;
  config.bridged = 10u; config.watchdog = 60u; config.persistence = 1u;
  config.limits[0].stroke = 0.1; config.limits[0].velocity = 0.5; config.limits[0].acceleration = 5.0;
  config.limits[0].following = config.limits[0].force = config.limits[0].error = (double)INFINITY;
  config.unit[0] = 1.0;
  return rths_init(&target, &config, position);
}
"""


def test_the_function_for_a_block_serves_a_session(tmp_path: Path) -> None:
    snippet = (TARGET / "rig_step.c").read_text()
    declared = re.search(r"^void rig_step\([^{]*\)", snippet, re.M)
    assert declared is not None
    head = '#include <math.h>\n#include "rths_target.h"\n' + declared.group() + ";\n"
    (tmp_path / "rig_step.c").write_text(head + snippet + BEGUN)
    strict = [
        "-std=c99",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Wsign-conversion",
        "-Wshadow",
        "-Werror",
    ]
    words = ["cc", *strict, "-ffp-contract=off", "-shared", "-fPIC", f"-I{TARGET}", "-o", tmp_path / "rig.so"]
    subprocess.run([*words, tmp_path / "rig_step.c", TARGET / "rths_target.c", "-lm"], check=True)
    rig = ctypes.CDLL(str(tmp_path / "rig.so"))
    assert rig.begin() == 0
    most = datagrams.LARGEST
    came, sizes, senders = (ctypes.c_uint8 * (16 * most))(), (ctypes.c_uint16 * 16)(), (ctypes.c_double * 16)()
    out, out_sizes, receivers = (
        (ctypes.c_uint8 * (17 * most))(),
        (ctypes.c_uint16 * 17)(),
        (ctypes.c_double * 17)(),
    )
    shown, force, command = (ctypes.c_double * 8)(), (ctypes.c_double * 8)(), (ctypes.c_double * 8)()
    us = 0xC0A80701 * 65536 + 25011

    def tick(*sent: bytes) -> Head:
        for i, data in enumerate([*sent, *[b""] * (16 - len(sent))]):
            sizes[i], senders[i] = len(data), us
            ctypes.memmove(ctypes.byref(came, most * i), data, len(data))
        rig.rig_step(came, sizes, senders, shown, force, out, out_sizes, receivers, command)
        shown[0] = command[0]
        place = 0 if out_sizes[0] else 16
        assert receivers[place] == us
        return datagrams.head_of(bytes(out[most * place : most * place + out_sizes[place]]))

    head_of_all = Head(datagrams.OPEN, 1, 77, period=1_000_000, transport=1)
    assert tick(datagrams.packed(head_of_all)).kind == datagrams.ANSWER
    head_of_all.kind, head_of_all.counter = datagrams.BEGIN, 0
    assert tick(datagrams.packed(head_of_all)).counter == 0
    for k in range(1, 50):
        head_of_all.kind, head_of_all.counter = datagrams.COMMAND, k
        state = tick(datagrams.packed(head_of_all, datagrams.command_rows([1e-5 * k], [1e-2], EMPTY)))
        assert (state.kind, state.counter, state.state) == (datagrams.STATE, k, datagrams.RUNNING)
        assert command[0] == 1e-5 * k


# -- arithmetic


@pytest.mark.parametrize(
    "numbers",
    [
        np.linspace(1.0, 20.0, 20_001),
        np.ldexp(np.linspace(1.0, 2.0, 2_001), 500),
        np.arange(1.0, 20_000.0) ** 2,
        np.nextafter(np.arange(1.0, 20_000.0) ** 2, 0.0)[1:],
        np.nextafter(np.arange(1.0, 20_000.0) ** 2, math.inf),
        np.exp(np.random.default_rng(1).uniform(0.0, 700.0, 20_000)),
    ],
    ids=["small", "large", "squares", "below squares", "above squares", "any"],
)
def test_its_own_square_root_is_that_of_the_processor(numbers: np.ndarray) -> None:
    root = module.library().rths_root
    np.testing.assert_array_equal([root(number) for number in numbers.tolist()], np.sqrt(numbers))


def finds(folder: Path, compiler: str, flags: str, run: str = "") -> int:
    """The outcome of the self-test in a build with ``flags``."""
    (folder / "tested.c").write_text('#include "rths_target.h"\nint main(void) { return rths_self_test(); }\n')
    built = folder / "tested"
    words = [*compiler.split(), *flags.split(), f"-I{TARGET}", folder / "tested.c", TARGET / "rths_target.c"]
    subprocess.run([*words, "-lm", "-o", built], check=True)
    return subprocess.run([*run.split(), built], check=False).returncode


REALS, CONTRACTED, ROUNDING = 1, 2, 4


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="flags of another processor")
@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("-std=c99 -O2", 0),
        ("-std=gnu99 -O2 -march=haswell -ffp-contract=off", 0),
        ("-std=gnu99 -O2 -march=haswell", CONTRACTED),
        ("-std=gnu99 -O2 -ffast-math", ROUNDING),
        ("-std=gnu99 -O2 -mfpmath=387", CONTRACTED | ROUNDING),
    ],
)
def test_the_self_test_notices_other_arithmetic(tmp_path: Path, flags: str, found: int) -> None:
    """A contracted product is found only where the options contract it: it is compiled beside the receiver."""
    assert finds(tmp_path, "gcc" if shutil.which("gcc") else "cc", flags) == found


@pytest.mark.parametrize("name", ["aarch64", "arm", "powerpc"])
def test_the_self_test_notices_contraction_on_another_processor(tmp_path: Path, name: str) -> None:
    compiler, emulator, packages = FOREIGN[name]
    needs(f"qemu-user {packages}", compiler, emulator)
    more = " -mfpu=vfpv4" if name == "arm" else ""
    for flags, found in (("-std=gnu99", CONTRACTED), ("-std=gnu99 -ffp-contract=off", 0), ("-std=c99", 0)):
        assert finds(tmp_path, compiler, f"{flags} -O2 -static{more}", emulator) == found


BUILD = """
from rths_nodes.laboratory.receiver import Receiver, ReceiverLimits
Receiver([ReceiverLimits(0.1, 0.5, 20.0)], 1e-3, 10, 60)
"""


def test_a_receiver_that_computes_otherwise_serves_nobody() -> None:
    needs("gcc", "gcc")
    env: Mapping[str, str] = os.environ | {"CC": "gcc -ffast-math", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", BUILD], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert mentions(done.stderr, "ConfigError", "-ffast-math")


def test_every_line_that_builds_it_forbids_contraction() -> None:
    assert "-ffp-contract=off" in module.COMPILER_OPTIONS
    assert "-ffp-contract=off" in (TARGET / "Makefile").read_text()
    lines = [line for line in PAGE.read_text().splitlines() if re.search(r"\bcc\b.*rths_target\.c", line)]
    assert lines
    assert [line for line in lines if "-ffp-contract=off" not in line] == []


# -- nothing undefined, no trap


@pytest.mark.parametrize("target", ["check", "traps"])
def test_hostile_datagrams_do_nothing_undefined_and_raise_no_exception(tmp_path: Path, target: str) -> None:
    """Trapped: invalid operations, divisions by zero, overflows; commands, sensors and limits are any reals."""
    probe = tmp_path / "probe.c"
    probe.write_text(
        "#define _GNU_SOURCE\n#include <fenv.h>\nint main(void) { return feenableexcept(FE_INVALID) == -1; }\n"
    )
    flags = "-fsanitize=address,undefined" if target == "check" else ""
    words = ["cc", *flags.split(), probe, "-lm", "-o", tmp_path / "probe"]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip(f"this compiler has no {'sanitizers' if target == 'check' else 'feenableexcept'}")
    passes(make(tmp_path / "target", target, ROUNDS="100"))


# -- rules and costs


def test_the_page_gives_a_reason_for_every_rule_that_is_not_kept(tmp_path: Path) -> None:
    """MISRA C:2012, as far as cppcheck looks."""
    needs("cppcheck", "cppcheck")
    done = make(tmp_path, "misra")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    found = set(re.findall(r"misra-c2012-(\d+\.\d+)", said))
    if not found:
        pytest.skip("this cppcheck has no add-on misra")
    others = [line for line in said.splitlines() if re.match(r"rths_target\.[ch]:", line) and "misra-" not in line]
    assert others == []
    stated = set(re.findall(r"^\| (\d+\.\d+) \|", (TARGET / "README.md").read_text(), re.M))
    assert found <= stated, found - stated
    if "Cppcheck 2.10" in subprocess.run(["cppcheck", "--version"], capture_output=True, text=True).stdout:
        assert stated <= found, f"no deviation any more: {stated - found}"


def test_no_known_tick_takes_more_instructions_than_the_page_says(tmp_path: Path) -> None:
    needs("valgrind", "valgrind")
    said = passes(make(tmp_path, "longest"))
    page = PAGE.read_text()
    for name in ("counted_tick", "rths_receive"):
        (found,) = re.findall(rf"^{name}: (\d+) instructions", said, re.M)
        (stated,) = re.findall(rf"`{name}` \| (\d+) ", page)
        # other compilers, other counts
        assert int(found) <= 1.5 * int(stated)
