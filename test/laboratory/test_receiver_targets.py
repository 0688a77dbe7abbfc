# SPDX-License-Identifier: Apache-2.0
"""Tests of the receiver on other processors: equal bits, no library, no undefined behaviour, cost of ticks."""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from c_compiler import require_compiler
from emulated_bench import free_port
from messages import mentions

import rths_nodes
from rths_nodes.core.samples import EMPTY
from rths_nodes.laboratory import receiver as module
from rths_nodes.laboratory.ports import datagrams
from rths_nodes.laboratory.ports.datagrams import Head

require_compiler()

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "examples" / "udp_target"
PAGE = ROOT / "doc" / "receiver.md"

FOREIGN = {
    "aarch64": ("aarch64-linux-gnu-gcc", "qemu-aarch64", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
    "arm": ("arm-linux-gnueabihf-gcc", "qemu-arm", "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross"),
    "powerpc": ("powerpc-linux-gnu-gcc", "qemu-ppc", "gcc-powerpc-linux-gnu libc6-dev-powerpc-cross"),
    "s390x": ("s390x-linux-gnu-gcc", "qemu-s390x", "gcc-s390x-linux-gnu libc6-dev-s390x-cross"),
}
"""Compiler, emulator, and Debian packages; the last two processors are big-endian."""

SOFTWARE_REALS = "-mthumb -march=armv7-a -mfloat-abi=soft --specs=rdimon.specs -DRTHS_FREESTANDING"
"""Thumb-2 and doubles in software, as on a Cortex-M4, which qemu-user cannot emulate."""


def needs(packages: str, *programs: str) -> None:
    """Skip the test if a program is missing."""
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here: apt install {packages}")


def make(folder: Path, *goals: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``make`` in a copy of the receiver's folder."""
    needs("make", "make")
    if not (folder / "Makefile").exists():
        shutil.copytree(TARGET, folder, dirs_exist_ok=True)
    command = ["make", *goals, *(f"{name}={value}" for name, value in variables.items())]
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def passes(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def numbers(output: str) -> list[str]:
    """Return the hashes of all outputs of the receiver: displacements, and force loops."""
    hashes = re.findall(r"^(?:vectors|in newtons): ([0-9a-f]{16})$", output, re.M)
    assert len(hashes) == 2
    return hashes


# Equal bits


def test_vectors_equal_stated_numbers(tmp_path: Path) -> None:
    stated = re.findall(r"RTHS_VECTORS\w* 0x([0-9a-f]+)u /", (TARGET / "hostile.c").read_text())
    assert stated == numbers(passes(make(tmp_path, "vectors")))


def test_different_vectors_are_reported(tmp_path: Path) -> None:
    make(tmp_path, "clean")
    source = tmp_path / "rths_target.c"
    text = source.read_text()
    assert "halved < 24;" in text
    source.write_text(text.replace("halved < 24;", "halved < 25;"))
    done = make(tmp_path, "vectors")
    assert done.returncode != 0
    assert mentions(done.stdout, "version", "receiver")


FLAGS = ("-O0", "-O3", "-O2 -DRTHS_FREESTANDING")


def short_run(folder: Path, **variables: str) -> list[str]:
    """Return the hashes after 100 rounds; the stated ones belong to 500."""
    return numbers(passes(make(folder, "vectors", ROUNDS="100", **variables)))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Hashes on this processor."""
    return short_run(tmp_path_factory.mktemp("here"))


@pytest.mark.parametrize("flags", FLAGS)
def test_vectors_are_independent_of_optimisation_and_library(
    tmp_path: Path, flags: str, expected: list[str]
) -> None:
    assert short_run(tmp_path, CFLAGS=flags) == expected


def foreign(name: str) -> dict[str, str]:
    """Return variables of ``make`` for another processor, or skip the test if it cannot be emulated."""
    compiler, emulator, packages = FOREIGN[name]
    needs(f"qemu-user {packages}", compiler, emulator)
    return {"CC": compiler, "RUN": emulator, "LDFLAGS": "-static"}


def test_clang_gives_same_vectors(tmp_path: Path, expected: list[str]) -> None:
    needs("clang", "clang")
    assert short_run(tmp_path, CC="clang") == expected


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        *((name, "-O2") for name in ("aarch64", "arm", "powerpc")),
        *((name, "-O3 -DRTHS_FREESTANDING") for name in FOREIGN),
    ],
)
def test_other_processor_gives_same_vectors(tmp_path: Path, name: str, flags: str, expected: list[str]) -> None:
    assert short_run(tmp_path, CFLAGS=flags, **foreign(name)) == expected


@pytest.mark.soak
@pytest.mark.parametrize("flags", FLAGS)
def test_build_gives_stated_vectors(tmp_path: Path, flags: str) -> None:
    passes(make(tmp_path, "vectors", CFLAGS=flags))


@pytest.mark.soak
@pytest.mark.parametrize("flags", ["-O2", "-O3 -DRTHS_FREESTANDING"])
@pytest.mark.parametrize("name", FOREIGN)
def test_other_processor_gives_stated_vectors(tmp_path: Path, name: str, flags: str) -> None:
    passes(make(tmp_path, "vectors", CFLAGS=flags, **foreign(name)))


def test_software_doubles_give_same_vectors(tmp_path: Path, expected: list[str]) -> None:
    """The build has no operating system, as on a microcontroller."""
    needs("gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-user", "arm-none-eabi-gcc", "qemu-arm")
    if not Path("/usr/lib/arm-none-eabi/lib/rdimon.specs").exists():
        pytest.skip("no newlib here: apt install libnewlib-arm-none-eabi")
    assert short_run(tmp_path, CC=f"arm-none-eabi-gcc {SOFTWARE_REALS}", RUN="qemu-arm") == expected


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="flags of another processor")
def test_flush_to_zero_gives_same_vectors(tmp_path: Path) -> None:
    """Only the link has -ffast-math, which sets the processor to flush to zero."""
    needs("gcc", "gcc")
    passes(make(tmp_path, CC="gcc"))
    plain = ["gcc", "-std=c99", "-O2", "-ffp-contract=off"]
    subprocess.run([*plain, "-c", "hostile.c"], cwd=tmp_path, check=True)
    link = ["gcc", "-ffast-math", "hostile.o", "rths_target.o", "-lm", "-o", "flushed"]
    subprocess.run(link, cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "flushed"], check=False).returncode == 0


# Rig in a separate process

LIMITS = ("0.25", "2.0", "20.0", "1.7e6")
"""Stroke, velocity, acceleration and force of the axis below."""

SPRING = [
    "axes.story_1.specimen={type: kelvin_voigt, stiffness: 7.6e6, damping: 0.0}",
    "compensator={type: none}",
    "axes.story_1.limits={stroke: 0.25, velocity: 2.0, force: 1.7e6, deceleration: 20.0}",
    "duration=3",
]


@pytest.mark.parametrize("name", ["here", "aarch64", "powerpc"])
def test_linux_loop_agrees_with_simulator(tmp_path: Path, name: str) -> None:
    """The rig is a spring that follows its command after one sample, as a pure delay in the simulator."""
    variables = foreign(name) if name != "here" else {}
    emulator = [variables.pop("RUN")] if variables else []
    passes(make(tmp_path, "linux_loop", **variables))
    port = free_port()
    command = [*emulator, str(tmp_path / "linux_loop"), str(port), "1024", *LIMITS, "7.6e6"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as rig:
        try:
            assert rig.stdout is not None
            assert rig.stdout.readline() == "ready\n"
            udp = f"port={{type: udp, emulator: true, port: {port}}}"
            remote = rths_nodes.run("chen_ricles_2010", [*SPRING, udp])
            output = rig.communicate(timeout=20.0)[0]
        finally:
            rig.kill()
    assert re.fullmatch(r"reason 2, \d+ samples, 0 bridged\n", output)
    delay = f"axes.story_1.actuator={{type: pure_delay, delay: {1.0 / 1024.0!r}}}"
    simulated = rths_nodes.run("chen_ricles_2010", [*SPRING, delay])
    assert np.abs(simulated.dof_displacement).max() > 0.02
    np.testing.assert_allclose(remote.dof_displacement, simulated.dof_displacement, rtol=0.0, atol=1e-15)


def test_linux_loop_reports_why_it_does_not_start(tmp_path: Path) -> None:
    passes(make(tmp_path, "linux_loop"))

    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run([tmp_path / "linux_loop", *arguments], capture_output=True, text=True, timeout=5.0)
        return done.returncode, done.stderr

    code, output = run()
    assert code == 2
    assert mentions(output, "usage", "RATE_HZ")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.bind(("127.0.0.1", 0))
        for port in (70_000, line.getsockname()[1]):
            code, output = run(str(port), "1024", *LIMITS, "7.6e6")
            assert code == 4
            assert mentions(output, port)


def test_linux_loop_repeats_no_missed_ticks_after_a_stall(tmp_path: Path) -> None:
    """Ticks in quick succession would move the axis faster than its limit."""
    passes(make(tmp_path, "linux_loop"))
    port = free_port()
    command = [str(tmp_path / "linux_loop"), str(port), "1024", *LIMITS, "7.6e6"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as rig,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line,
    ):
        try:
            assert rig.stdout is not None
            assert rig.stdout.readline() == "ready\n"
            line.settimeout(5.0)
            line.connect(("127.0.0.1", port))
            head = Head(datagrams.OPEN, 1, 7, 1, period=976562, flags=datagrams.EMULATOR, transport=1)
            line.send(datagrams.packed(head))
            line.recv(datagrams.LARGEST)
            rig.send_signal(signal.SIGSTOP)
            line.send(datagrams.packed(replace(head, kind=datagrams.BEGIN)))
            time.sleep(0.3)
            began = time.monotonic()
            rig.send_signal(signal.SIGCONT)
            output = rig.communicate(timeout=20.0)[0]  # the watchdog ends the session after 100 samples
            passed = time.monotonic() - began
        finally:
            rig.kill()
    (samples,) = map(int, re.findall(r"reason 1, (\d+) samples", output))
    assert 100 <= samples <= 10 + 1024 * passed


# Freestanding builds

CORTEX_M7 = "arm-none-eabi-gcc -mcpu=cortex-m7 -mthumb"
COMPILERS = {
    "here": ("cc", "gcc", set()),
    "cortex-m4": ("arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb", "gcc-arm-none-eabi", {"__aeabi_"}),
    "cortex-m7": (f"{CORTEX_M7} -mfpu=fpv5-d16 -mfloat-abi=hard", "gcc-arm-none-eabi", {"__aeabi_"}),
    "aarch64": ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu", set()),
    "arm": ("arm-linux-gnueabihf-gcc", "gcc-arm-linux-gnueabihf", {"__aeabi_"}),
    "powerpc": ("powerpc-linux-gnu-gcc", "gcc-powerpc-linux-gnu", {"__fix", "__float"}),
    "s390x": ("s390x-linux-gnu-gcc", "gcc-s390x-linux-gnu", set()),
}
"""Compiler with its processor, package, and prefixes of the compiler's arithmetic functions."""


@pytest.mark.parametrize("name", COMPILERS)
def test_freestanding_build_has_no_warnings_and_dependencies(tmp_path: Path, name: str) -> None:
    compiler, packages, prefixes = COMPILERS[name]
    program = compiler.split()[0]
    symbols = program.removesuffix("gcc") + "nm" if program != "cc" else "nm"
    needs(packages, program, symbols)
    output = passes(make(tmp_path, "freestanding", CC=compiler))
    for warning in ("all", "extra", "conversion", "shadow", "double-promotion", "error"):
        assert f"-W{warning} " in output
    undefined = subprocess.check_output([symbols, "-u", tmp_path / "freestanding.o"], text=True).split()
    # a C compiler requires these four in every environment
    required = set(undefined) - {"U", "memcpy", "memset", "memmove", "memcmp"}
    assert [name for name in required if not name.startswith(tuple(prefixes))] == []


def test_only_freestanding_headers_are_included() -> None:
    text = (TARGET / "rths_target.c").read_text() + (TARGET / "rths_target.h").read_text()
    hosted = re.search(r"#if !defined\(RTHS_FREESTANDING\).*?#else", text, re.S)
    assert hosted is not None
    included = re.findall(r"#include <(.*?)>", text.replace(hosted.group(), ""))
    assert set(included) <= {"float.h", "stddef.h", "stdint.h"}


def test_documented_array_holds_object(tmp_path: Path) -> None:
    """LabVIEW does not know the type and allocates an array."""
    (doubles,) = re.findall(r"array of (\d+) doubles", PAGE.read_text())
    source = tmp_path / "size.c"
    source.write_text(f'#include "rths_target.h"\nint fits[8 * {doubles} >= sizeof(rths_target) ? 1 : -1];\n')
    subprocess.run(["cc", "-fsyntax-only", f"-I{TARGET}", source], check=True)


def test_header_compiles_as_cpp(tmp_path: Path) -> None:
    """TwinCAT and S-functions use C++."""
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


BEGIN = """
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


def test_block_function_runs_session(tmp_path: Path) -> None:
    snippet = (TARGET / "rig_step.c").read_text()
    declared = re.search(r"^void rig_step\([^{]*\)", snippet, re.M)
    assert declared is not None
    declaration = '#include <math.h>\n#include "rths_target.h"\n' + declared.group() + ";\n"
    (tmp_path / "rig_step.c").write_text(declaration + snippet + BEGIN)
    warnings = ["-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Werror"]
    options = ["-std=c99", *warnings, "-ffp-contract=off", "-shared", "-fPIC", f"-I{TARGET}"]
    sources = [tmp_path / "rig_step.c", TARGET / "rths_target.c"]
    subprocess.run(["cc", *options, *sources, "-lm", "-o", tmp_path / "rig.so"], check=True)
    rig = ctypes.CDLL(str(tmp_path / "rig.so"))
    assert rig.begin() == 0
    size = datagrams.LARGEST
    received, sizes, senders = (ctypes.c_uint8 * (16 * size))(), (ctypes.c_uint16 * 16)(), (ctypes.c_double * 16)()
    sent, sent_sizes, receivers = (
        (ctypes.c_uint8 * (17 * size))(),
        (ctypes.c_uint16 * 17)(),
        (ctypes.c_double * 17)(),
    )
    measured, force, command = (ctypes.c_double * 8)(), (ctypes.c_double * 8)(), (ctypes.c_double * 8)()
    peer = 0xC0A80701 * 65536 + 25011

    def tick(data: bytes, interlock: int = 1) -> Head:
        for i, datagram in enumerate([data, *[b""] * 15]):
            sizes[i], senders[i] = len(datagram), peer
            ctypes.memmove(ctypes.byref(received, size * i), datagram, len(datagram))
        rig.rig_step(received, sizes, senders, measured, force, interlock, sent, sent_sizes, receivers, command)
        measured[0] = command[0]
        slot = 0 if sent_sizes[0] else 16
        assert receivers[slot] == peer
        return datagrams.head_of(bytes(sent[size * slot : size * slot + sent_sizes[slot]]))

    head = Head(datagrams.OPEN, 1, 77, period=1_000_000, transport=1)
    assert tick(datagrams.packed(head)).kind == datagrams.ANSWER
    head.kind, head.counter = datagrams.BEGIN, 0
    assert tick(datagrams.packed(head)).counter == 0
    for k in range(1, 50):
        head.kind, head.counter = datagrams.COMMAND, k
        state = tick(datagrams.packed(head, datagrams.command_rows([1e-5 * k], [1e-2], EMPTY)))
        assert (state.kind, state.counter, state.state) == (datagrams.STATE, k, datagrams.RUNNING)
        assert command[0] == 1e-5 * k
    state = tick(b"", interlock=2)
    assert (state.interlock, state.state, state.reason) == (2, datagrams.BRAKING, 3)


# Arithmetic


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
def test_square_root_equals_that_of_processor(numbers: np.ndarray) -> None:
    root = module.library().rths_root
    np.testing.assert_array_equal([root(number) for number in numbers.tolist()], np.sqrt(numbers))


def self_test(folder: Path, compiler: str, flags: str, emulator: str = "") -> int:
    """Return the result of the self-test in a build with ``flags``."""
    (folder / "tested.c").write_text('#include "rths_target.h"\nint main(void) { return rths_self_test(); }\n')
    program, sources = folder / "tested", [folder / "tested.c", TARGET / "rths_target.c"]
    subprocess.run([compiler, *flags.split(), f"-I{TARGET}", *sources, "-lm", "-o", program], check=True)
    return subprocess.run([*emulator.split(), program], check=False).returncode


REALS, CONTRACTED, ROUNDING = 1, 2, 4


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="flags of another processor")
@pytest.mark.parametrize(
    ("flags", "errors"),
    [
        ("-std=c99 -O2", 0),
        ("-std=gnu99 -O2 -march=haswell -ffp-contract=off", 0),
        ("-std=gnu99 -O2 -march=haswell", CONTRACTED),
        ("-std=gnu99 -O2 -ffast-math", ROUNDING),
        ("-std=gnu99 -O2 -mfpmath=387", CONTRACTED | ROUNDING),
    ],
)
def test_self_test_detects_inexact_arithmetic(tmp_path: Path, flags: str, errors: int) -> None:
    """The receiver and the self-test are compiled with the same options."""
    assert self_test(tmp_path, "gcc" if shutil.which("gcc") else "cc", flags) == errors


@pytest.mark.parametrize("name", ["aarch64", "arm", "powerpc"])
def test_self_test_detects_contraction_on_other_processor(tmp_path: Path, name: str) -> None:
    variables = foreign(name)
    unit = " -mfpu=vfpv4" if name == "arm" else ""
    for flags, errors in (("-std=gnu99", CONTRACTED), ("-std=gnu99 -ffp-contract=off", 0), ("-std=c99", 0)):
        result = self_test(tmp_path, variables["CC"], f"{flags} -O2 -static{unit}", variables["RUN"])
        assert result == errors


BUILD = """
from rths_nodes.laboratory.receiver import Receiver, ReceiverLimits
Receiver([ReceiverLimits(0.1, 0.5, 20.0)], 1e-3, 10, 60)
"""


def test_receiver_with_fast_math_is_refused() -> None:
    needs("gcc", "gcc")
    env: Mapping[str, str] = os.environ | {"CC": "gcc -ffast-math", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", BUILD], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert mentions(done.stderr, "ConfigError", "-ffast-math")


def test_documented_builds_disable_contraction() -> None:
    assert "-ffp-contract=off" in module.COMPILER_OPTIONS
    assert "-ffp-contract=off" in (TARGET / "Makefile").read_text()
    lines = [line for line in PAGE.read_text().splitlines() if re.search(r"\bcc\b.*rths_target\.c", line)]
    assert lines
    assert [line for line in lines if "-ffp-contract=off" not in line] == []


@pytest.mark.parametrize("target", ["check", "traps"])
def test_hostile_datagrams_cause_no_undefined_behaviour(tmp_path: Path, target: str) -> None:
    """Invalid operations, divisions by zero and overflows trap; commands, sensors and limits are arbitrary."""
    probe = tmp_path / "probe.c"
    probe.write_text(
        "#define _GNU_SOURCE\n#include <fenv.h>\nint main(void) { return feenableexcept(FE_INVALID) == -1; }\n"
    )
    flags = "-fsanitize=address,undefined" if target == "check" else ""
    command = ["cc", *flags.split(), probe, "-lm", "-o", tmp_path / "probe"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip(f"this compiler has no {'sanitizers' if target == 'check' else 'feenableexcept'}")
    passes(make(tmp_path / "target", target, ROUNDS={"check": "100", "traps": "1200"}[target]))


def test_deviations_from_misra_are_documented(tmp_path: Path) -> None:
    """MISRA C:2012, the rules that cppcheck implements."""
    needs("cppcheck", "cppcheck")
    done = make(tmp_path, "misra")
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    violated = set(re.findall(r"misra-c2012-(\d+\.\d+)", output))
    if not violated:
        pytest.skip("this cppcheck has no add-on misra")
    lines = [line for line in output.splitlines() if re.match(r"rths_target\.[ch]:", line)]
    assert [line for line in lines if "misra-" not in line] == []
    documented = set(re.findall(r"^\| (\d+\.\d+) \|", (TARGET / "README.md").read_text(), re.M))
    assert violated <= documented, violated - documented
    if "Cppcheck 2.10" in subprocess.run(["cppcheck", "--version"], capture_output=True, text=True).stdout:
        assert documented <= violated, documented - violated


def test_ticks_take_no_more_instructions_than_documented(tmp_path: Path) -> None:
    needs("valgrind", "valgrind")
    output = passes(make(tmp_path, "longest"))
    for name in ("counted_tick", "rths_receive"):
        (count,) = re.findall(rf"^{name}: (\d+) instructions", output, re.M)
        (documented,) = re.findall(rf"`{name}` \| (\d+) ", PAGE.read_text())
        assert int(count) <= 1.5 * int(documented)  # counts depend on the compiler
