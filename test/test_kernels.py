# SPDX-License-Identifier: Apache-2.0
"""Tests of kernels: the plain and the compiled form give the same bits, and keep the rules that ensure this.

Every registered component with a kernel is tested; a new family needs its inputs in ``helpers/driven_kernels.py``.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driven_kernels import DT, EXTREMES, FAMILIES, agree, flat, functions_of, same, without_purpose, wrong_in
from in_c import compiled
from kernel_rules import broken
from messages import mentions
from minimal_components import COMPONENTS, data_of

from rths_nodes.codegen.values import Untranslatable
from rths_nodes.core import arithmetic, registry
from rths_nodes.core.arithmetic import groups, numbers
from rths_nodes.core.kernels import copied, identity
from rths_nodes.core.samples import Motion
from rths_nodes.core.validation import from_data

NEEDS_MORE = ("integrator", "specimen", "actuator", "rig")
"""Families whose ``kernel_of`` takes more than parameters."""


def has_kernel(family: str, name: str) -> bool:
    cls = registry.load(family, name)
    kernel_of = getattr(cls, "kernel_of", None)
    # the base classes of actuators and rigs have a kernel_of that returns None
    if family not in FAMILIES or kernel_of is None or kernel_of.__qualname__.startswith(("Actuator.", "Rig.")):
        return False
    return family in NEEDS_MORE or kernel_of(from_data(cls.Params, data_of(family, name), family)) is not None


ONE_AXIS = {"displacement": [[1.0]], "velocity": [[0.02]], "acceleration": [[1e-4]], "jerk": [[0.0]]}
TWO_AXES = data_of("compensator", "identified_inverse")
PINS = data_of("setup", "rigid_coupler")
VARIANTS: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("compensator", "none"): [{"lead": 0.01}],
    ("compensator", "identified_inverse"): [
        {"inverse": ONE_AXIS},
        {"inverse": ONE_AXIS, "lead": 0.01, "order": 2, "decimation": 3, "memory": 0.01},
        {"inverse": ONE_AXIS, "decimation": 70},
        {"inverse": ONE_AXIS, "learning": False},
        TWO_AXES | {"learning": False},
        TWO_AXES | {"lead": 0.01, "decimation": 1},
    ],
    ("compensator", "chain"): [
        {"first": {"type": "discrete_model", "update_after": 0.0}, "second": {"type": "pi_lead"}, "lead": 0.01},
    ],
    ("compensator", "linear"): [
        {"law": {"D": [[0.5, 0.1, 2.0, 1.0], [0.0, 1.0, -1.0, 0.0]]}, "inputs": ["target", "error"], "lead": 0.01},
        {"law": {"numerator": [0.1, 1.0], "denominator": [1e-4, 0.02, 1.0]}, "target_of": "measurement"},
    ],
    ("compensator", "model_based"): [{"known": data_of("compensator", "model_based")["known"]}],
    ("setup", "upright_load"): [{"actuator_length": 2.0, "setup": {"type": "matrix", "matrix": [[1, 0], [1, 1]]}}],
    ("setup", "rigid_coupler"): [
        PINS | {"kinematics": "linear"},
        PINS | {"kinematics": "long", "pose": [[1.0, 0.5], [0.0, 1.0]]},
    ],
    ("setup", "matrix"): [{"matrix": [[1.0, *[0.5] * 63], [0.5, -1.0, *[0.25] * 62]]}],
    ("ramp", "predictor_corrector"): [{"order": 3}],
    ("force_controller", "feed_forward_pi"): [{"stiffness": 1e9}],
    ("force_controller", "servo_valve"): [{"stiffness": 1e9}],
}
"""Further parameters, which lead to another text or to other branches."""
WITH_KERNEL = [
    (*pair, data) for pair in COMPONENTS for data in (data_of(*pair), *VARIANTS.get(pair, [])) if has_kernel(*pair)
]
KERNEL_IDS = ["-".join(kernel[:2]) for kernel in WITH_KERNEL]
every_kernel = pytest.mark.parametrize(("family", "name", "data"), WITH_KERNEL, ids=KERNEL_IDS)


def made(family: str, name: str, data: dict[str, Any], seed: int, extreme: bool) -> Any:
    """Kernel, constants and rows of inputs."""
    cls = registry.load(family, name)
    return FAMILIES[family](cls, from_data(cls.Params, data, family), np.random.default_rng(seed), extreme)


def learns_two_axes(data: dict[str, Any]) -> bool:
    """True for the forms that take 15 s each."""
    return data.get("inverse") is TWO_AXES["inverse"] and data.get("learning", True)


TO_COMPILE = [
    pytest.param(*kernel, id=name, marks=[pytest.mark.soak] * learns_two_axes(kernel[2]))
    for kernel, name in zip(WITH_KERNEL, KERNEL_IDS, strict=True)
]


@pytest.mark.parametrize("extreme", [False, True], ids=["random", "extreme"])
@pytest.mark.parametrize(("family", "name", "data"), TO_COMPILE)
def test_plain_and_compiled_give_the_same_bits(family: str, name: str, data: Any, extreme: bool) -> None:
    agree(*made(family, name, data, 7, extreme))


@every_kernel
def test_random_inputs_give_finite_numbers(family: str, name: str, data: Any) -> None:
    """Otherwise the comparison of bits would mostly compare nan."""
    kernel, constants, rows = made(family, name, data, 7, False)
    state = copied(kernel.rest(constants))
    for inputs in rows:
        state, output = kernel.step(constants, state, *inputs)
        assert np.isfinite(flat(output)).all()
        assert np.isfinite(flat(state)).all()


@every_kernel
def test_copied_state_is_independent(family: str, name: str, data: Any) -> None:
    kernel, constants, rows = made(family, name, data, 3, False)
    state = copied(kernel.rest(constants))
    for inputs in rows[:5]:
        state, _ = kernel.step(constants, state, *inputs)
    copy, before = copied(state), flat(copied(state))
    for inputs in rows[5:20]:
        copy, _ = kernel.step(constants, copy, *inputs)
    assert same(flat(state), before)
    assert isinstance(state, tuple)


@every_kernel
def test_functions_of_kernel_have_defined_bits_and_docstrings(family: str, name: str, data: Any) -> None:
    """The first paragraphs of their docstrings become comments in C."""
    kernel, _, _ = made(family, name, data, 1, False)
    functions = functions_of(kernel.step, {}).values()
    assert {function.__qualname__: faults for function in functions if (faults := wrong_in(function))} == {}
    assert [location for function in functions if (location := without_purpose(function))] == []


@every_kernel
def test_kernel_keeps_rules_of_c_form(family: str, name: str, data: Any) -> None:
    kernel, constants, rows = made(family, name, data, 7, False)
    assert broken(kernel.step, constants, copied(kernel.rest(constants)), rows[:25]) == []


def defined(text: str, source: Path, **names: Any) -> dict[str, Any]:
    """Write a module with ``text`` and run it; return its names."""
    source.parent.mkdir(exist_ok=True)
    source.write_text(text, encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "rths_nodes.example", **names}
    exec(compile(text, str(source), "exec"), namespace)
    return namespace


RULE_BREAKERS = """
def an_array_in_two_places(k, s, x):
    a, b = s
    a[0] = a[0] + x
    return (a, a), b[0]  # here

def an_array_of_the_constants(k, s, x):
    a, b = s
    a[0] = a[0] + x
    return (k[0], b), a[0]  # here

def an_array_behind_a_branch(k, s, x):
    a, b = s
    c = b
    if x > 0.0:
        c = a
    c[0] = c[0] + x
    return (c, b), a[0]  # here

def a_name_of_two_forms(k, s, x):
    y = x
    if x > 0.0:
        y = np.zeros(2)
    return s, y  # here

def a_list_that_grows(k, s, x):
    grown = []
    for _ in range(2):
        grown.append(x)  # here
    return s, x

def a_tuple_of_arrays_by_a_computed_number(k, s, x):
    place = 0
    while place < 1 and x > 0.0:
        place += 1
    return s, s[place][0]  # here
"""
"""Kernels that break a rule in the marked line."""


@pytest.mark.parametrize(
    "rule", [name.replace("_", " ") for name in re.findall(r"^def (\w+)", RULE_BREAKERS, re.M)]
)
def test_broken_rule_is_reported_with_file_and_line(rule: str, tmp_path: Path) -> None:
    source, name = tmp_path / "example.py", rule.replace(" ", "_")
    step = defined(RULE_BREAKERS, source, np=np)[name]
    before, _, after = RULE_BREAKERS.partition(f"def {name}(")
    line = (before + after.partition("# here")[0]).count("\n") + 1

    def arguments(x: float) -> tuple[Any, ...]:
        return (np.ones(2),), (np.array([1.0, 2.0]), np.array([3.0, 4.0])), x

    with pytest.raises(Untranslatable) as refused:
        compiled(step, arguments(0.5), (True, False, False))
    assert mentions(str(refused.value), f"{source}:{line}:")
    if "computed" not in rule:  # a short tuple may be indexed
        reports = broken(step, *arguments(0.5)[:2], [(-0.5,), (0.5,)])
        assert any(f"{source}:{line if 'list' in rule else ''}" in report for report in reports)


def test_computed_index_of_long_tuple_is_reported(tmp_path: Path) -> None:
    text = "def step(k, s, x):\n    place = 0\n    place += 1\n    return s, k[place]\n"
    (report,) = broken(defined(text, tmp_path / "example.py")["step"], (0.5,) * 20, (), [(0.5,)])
    assert report.startswith(f"{tmp_path / 'example.py'}:4: k ")


@pytest.mark.parametrize("call", ["math.exp(x)", "x ** 2.0", "sum((x, x))", "round(x)", "hypot(x, x)"])
def test_forbidden_call_is_reported(call: str, tmp_path: Path) -> None:
    text = f"import math\n\ndef step(k, s, x):\n    return s, {call}\n"
    assert wrong_in(defined(text, tmp_path / "example.py")["step"]) != []


def test_kernels_of_two_modules_keep_their_own_numbers(tmp_path: Path) -> None:
    """The modules differ only in a global number."""
    text = "GAIN = {}\n\ndef step(x):\n    return GAIN * x\n"
    first, second = (defined(text.format(gain), tmp_path / f"{gain}.py")["step"] for gain in (2.0, 3.0))

    def both(x: float) -> Any:
        return first(x), second(x)

    assert identity(first) != identity(second)
    assert compiled(both, (1.0,), (False,))(1.0) == both(1.0) == (2.0, 3.0)


def scaled(inner: Any, gain: float) -> Any:
    def step(x: float) -> Any:
        return gain * inner(x)

    return step


def test_nested_kernels_of_one_factory_keep_their_own_numbers() -> None:
    first, second = (scaled(scaled(abs, gain), 1.0) for gain in (2.0, 3.0))

    def both(x: float) -> Any:
        return first(x), second(x)

    assert identity(first) != identity(second)
    assert compiled(both, (1.0,), (False,))(1.0) == both(1.0) == (2.0, 3.0)


def test_identity_visits_each_function_once() -> None:
    def of_two(one: Any, other: Any) -> Any:
        return lambda x: one(x) + other(x)

    function: Any = abs
    for _ in range(60):
        function = of_two(function, function)
    assert str(identity(function)).count("<code object") == 60


def read_before_a_write(a: Any, x: Any) -> Any:
    known, first, row = numbers(a), a[0], (a[0], a[1])
    a[0] = x
    return known[0], first, row


def read_in_the_pass_that_needs_it(a: Any, x: Any) -> Any:
    for number in a:
        a[1] = x
        x = number + x
    return x


def written_apart(a: Any, x: Any) -> Any:
    known = numbers(a)
    known[0] = x
    return a[0], known[0]


@pytest.mark.parametrize("function", [read_before_a_write, read_in_the_pass_that_needs_it, written_apart])
def test_array_is_read_at_same_moment_as_in_python(function: Any) -> None:
    quick = compiled(function, (np.zeros(2), 5.0), (False, False))
    assert same(function(np.array([1.0, 2.0]), 5.0), quick(np.array([1.0, 2.0]), 5.0))


# Arithmetic

ONE_ARGUMENT = [getattr(arithmetic, name) for name in ("exp", "tanh", "sqrt", "sin", "cos", "rounded")]
EDGES = (*EXTREMES, 2.5, -2.5, 0.5, 1.5, 709.7, 709.79, 710.0, -746.0, 4503599627370495.5, 9.1e15)


@pytest.mark.parametrize("function", ONE_ARGUMENT, ids=lambda function: function.__name__)
def test_elementary_functions_are_defined_for_every_float(function: Any) -> None:
    def value(x: float) -> Any:
        return function(x)

    quick, rng = compiled(value, (0.5,), (False,)), np.random.default_rng(1)
    for x in (*EDGES, *(rng.standard_normal(3000) * 10.0 ** rng.uniform(-8, 8, 3000)).tolist()):
        assert same(function(x), quick(x)), x


def test_powers_are_defined_for_every_float() -> None:
    quick, rng = compiled(arithmetic.power, (0.5, 2.5), (False, False)), np.random.default_rng(1)
    for x in (*EDGES, *rng.uniform(0.0, 1e3, 2000).tolist()):
        for exponent in (0.01, 1.0, 2.0, 2.5, 100.0):
            assert same(arithmetic.power(x, exponent), quick(x, exponent)), (x, exponent)
    assert arithmetic.power(3.0, 2.5) == 3.0**2.5
    assert arithmetic.power(1e300, 2.0) == math.inf


def test_rounded_equals_round() -> None:
    rng = np.random.default_rng(2)
    values = (*(rng.standard_normal(5000) * 10.0 ** rng.uniform(-3, 14, 5000)).tolist(), 0.5, 1.5, -2.5, 2.5)
    for x in values:
        assert arithmetic.rounded(x) == float(round(x))


def product(matrix: Any, vector: Any) -> Any:
    return arithmetic.matvec(matrix, vector)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (12, 12), (2, 40), (1, 100), (17, 3), (29, 87)])
def test_product_is_summed_from_left_to_right(shape: tuple[int, int], order: Any) -> None:
    rng = np.random.default_rng(3)
    matrix, vector = np.array(rng.standard_normal(shape), order=order), rng.standard_normal(shape[1])
    matrix[-1] = -0.0
    result = arithmetic.matvec(matrix, vector)
    assert same(result, compiled(product, (matrix, vector), (False, False))(matrix, vector))
    assert result.tolist() == [arithmetic.dot((0.0, *row), (0.0, *vector.tolist())) for row in matrix.tolist()]
    np.testing.assert_allclose(result, matrix @ vector, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("n", "count"), [(1, 5), (3, 3), (6, 3)])
def test_product_in_groups_equals_product(n: int, count: int) -> None:
    """The last case has too many products to be written out."""
    like = ((0.0,) * n,) * count

    def in_groups(matrix: Any, vector: Any) -> Any:
        return groups(like, matrix, vector)

    rng = np.random.default_rng(n)
    matrix, array = np.asfortranarray(rng.standard_normal((count * n, 4 * n))), rng.standard_normal(4 * n)
    matrix[n] = -0.0
    expected = arithmetic.matvec(matrix, array)
    for vector in (array, tuple(array.tolist())):
        for form in (in_groups, compiled(in_groups, (matrix, vector), (False, False))):
            assert same(np.concatenate(form(matrix, vector)), expected)


# The page on components


def test_law_of_components_page_is_same_in_both_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    page = (Path(__file__).parents[1] / "doc" / "components.md").read_text(encoding="utf-8")
    texts = [text for text in re.findall(r"```python\n(.*?)```", page, re.S) if "class Feedforward" in text]
    modules = [
        defined(text, tmp_path / str(number) / "feedforward.py", __name__="my_lab.feedforward")
        for number, text in enumerate(texts)
    ]
    classes = [module["Feedforward"] for module in modules]
    plain, by_kernel = (cls(cls.Params(delay=0.02), DT, 2) for cls in classes)
    rng = np.random.default_rng(5)
    for _ in range(20):
        target, measured = Motion(*rng.standard_normal((3, 2)), force=np.zeros(2)), rng.standard_normal(2)
        assert same(plain.step(target, measured), by_kernel.step(target, measured))
    step = modules[1]["step"]
    assert wrong_in(step) == []
    rest = (0.0, 0.0, 0.0, False, False)
    in_c = compiled(step, ((0.02,), (), 0.0, 0.0, *rest), (True, False, *[False] * 7))
    assert same(in_c((0.02,), (), 1.0, 0.5, *rest), step((0.02,), (), 1.0, 0.5, *rest))
    (shown,) = re.findall(r"```c\n(.*?)```", page, re.S)
    assert shown in next(tmp_path.rglob("*.c")).read_text(encoding="utf-8")
