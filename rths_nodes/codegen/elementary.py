# SPDX-License-Identifier: Apache-2.0
"""Compare the elementary functions of the C library with stored results, to the last bit.

The bits of ``exp``, ``log``, ``pow``, ``sin``, ``cos`` and ``tanh`` belong to the C library. The stored ones are
from glibc 2.28 and later on x86-64 and aarch64.
"""

from __future__ import annotations

import ctypes
from functools import cache

from rths_nodes.codegen.building import Toolchain, Unbuilt, built

ARGUMENTS = (0.1, 0.7, 1.3, 2.9, 7.7, 23.1, 101.3, 487.9)
EXPONENT = 1.7
RESULTS = {
    "exp": "0x1.1aec7b35a00d4p+0 0x1.01c2a61268987p+1 0x1.d5ab83615f8b4p+1 0x1.22c94ca7a81fep+4 "
    "0x1.140b22bfe1dacp+11 0x1.40f6164d942dep+33 0x1.1b118c46709eep+146 0x1.dab66b2a98274p+703",
    "log": "-0x1.26bb1bbb55515p+1 -0x1.6d3c324e13f50p-2 0x1.0ca937be1b9dcp-2 0x1.1090e20315212p+0 "
    "0x1.0546b52e30f62p+1 0x1.91e60903990e7p+1 0x1.278eba4e9c340p+2 0x1.8c2ac517681efp+2",
    "pow": "0x1.46e75df96dc9ap-6 0x1.1736b10d5852ep-1 0x1.8fe493556f45bp+0 0x1.8712659f1c24ap+2 "
    "0x1.011cf4b56099ep+5 0x1.a012e410c7415p+7 0x1.40f4d8156edc2p+11 0x1.225ed5f723deep+15",
    "sin": "0x1.98eaecb8bcb2cp-4 0x1.49d6e694619b8p-1 0x1.ed577f9c51e4bp-1 0x1.e9fb8d64830e3p-3 "
    "0x1.f9f12fcee5458p-1 -0x1.ca55ffa927dccp-1 0x1.6410ffbd9fe73p-1 -0x1.a166c5ddec65cp-1",
    "cos": "0x1.fd712f9a817c1p-1 0x1.87996529f9d93p-1 0x1.11eb3682a4c5fp-2 -0x1.f1216dba340c9p-1 "
    "0x1.3a1c134c1c59ep-3 -0x1.c862f5a04023cp-2 0x1.6fe9fc6aca920p-1 -0x1.28835b20273cep-1",
    "tanh": "0x1.983d7795f413ap-4 0x1.356fb17af2e92p-1 0x1.b933c726e9b3ap-1 0x1.fce8bd82660e8p-1 "
    "0x1.fffff23d39f08p-1 0x1.0000000000000p+0 0x1.0000000000000p+0 0x1.0000000000000p+0",
}
"""Results of each function at the arguments, in hexadecimal."""


TEXT = "#include <math.h>\n" + "".join(
    f"double of_{name}(double x) {{ return {name}(x{f', {EXPONENT}' if name == 'pow' else ''}); }}\n"
    for name in RESULTS
)
"""C text with a function for each elementary function."""


@cache
def check_elementary(tools: Toolchain) -> None:
    """Raises Unbuilt if a function of this machine's C library has other bits than those stored."""
    library = built(TEXT, tools)
    for name, expected in RESULTS.items():
        function = getattr(library.handle, f"of_{name}")
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
        for argument, result in zip(ARGUMENTS, expected.split(), strict=True):
            computed = function(argument)
            if computed != float.fromhex(result):
                raise Unbuilt(
                    f"{name}({argument}) of this C library is {computed!r}, not {float.fromhex(result)!r}"
                )
