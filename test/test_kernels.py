# SPDX-License-Identifier: Apache-2.0
"""Tests of kernels: the plain and the compiled form give the same bits, and keep the rules that ensure this.

Every registered component with a kernel is tested; a new family needs its inputs in ``helpers/driven_kernels.py``.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from driven_kernels import DT, EXTREMES, FAMILIES, agree, flat, functions_of, same, without_purpose, wrong_in
from in_c import compiled, defined
from messages import mentions
from minimal_components import COMPONENTS, data_of

from rths_nodes.codegen.values import Untranslatable
from rths_nodes.core import arithmetic, registry
from rths_nodes.core.arithmetic import groups, numbers
from rths_nodes.core.kernels import copied, identity
from rths_nodes.core.samples import Motion
from rths_nodes.core.validation import from_data

# The rules that a kernel keeps so that its C form has its bits (core/kernels.py), checked while it runs.
#
# 1. A step returns the arrays of its state, worked in place, or fresh arrays; never an old array in a new place.
# 2. One name has one form (type and shape) within a function.
# 3. No list grows in a loop.
# 4. What a computed number indexes is an array, or a short tuple, which each call copies into an array in C.

SHORT = 16
"""Longest tuple that a computed number may index."""
GROWING = ("append", "extend", "insert")
Found = dict[str, None]
"""Broken rules with file and line, each once, in their order."""


def broken(step: Callable[..., Any], constants: object, state: Any, rows: Any) -> list[str]:
    """Drive a step by ``rows`` of inputs; return the rules that it, or a function that it reaches, breaks."""
    functions = {kernel.__code__: kernel for kernel in functions_of(step, {}).values()}
    violations: Found = {}
    for function in functions.values():
        violations.update(dict.fromkeys(grown(function)))
    traced = Traced(functions, violations)
    with np.errstate(all="ignore"):
        for inputs in rows:
            sys.settrace(traced)
            try:
                after, _ = step(constants, state, *inputs)
            finally:
                sys.settrace(None)
            where = f"{step.__code__.co_filename}:{step.__code__.co_firstlineno}"
            violations.update((f"{where}: {text}", None) for text in moved((constants, state, inputs), after))
            state = after
    return list(violations)


# Rule 1


def arrays(value: object, path: str) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the arrays of a value with their paths."""
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from arrays(item, f"{path}[{index}]")


def moved(before: tuple[object, object, object], after: object) -> Iterator[str]:
    """Yield the arrays of a new state that are also at another path."""
    names = ("constants", "state", "inputs")
    old = [entry for name, value in zip(names, before, strict=True) for entry in arrays(value, name)]
    new = list(arrays(after, "state"))
    for at, (path, array) in enumerate(new):
        for other_path, held in (*old, *new[:at]):
            same = other_path == path and held is array
            if not same and np.shares_memory(array, held):
                yield f"{path} of the new state is {other_path}"


# Rules 2 and 4


def form(value: object) -> object:
    """Return type and shape of a value."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype.kind, value.shape
    if isinstance(value, (tuple, list)):
        return "tuple", tuple(form(item) for item in value)
    if isinstance(value, (bool, int, float, np.generic)):
        return "number"
    return type(value).__name__


class Traced:
    """A trace function that compares the forms of the names of ``functions``, line by line."""

    def __init__(self, functions: dict[CodeType, Any], found: Found) -> None:
        self._functions, self._found = functions, found
        self._indexed = {code: indexed(function) for code, function in functions.items()}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        """Trace the call of a kernel."""
        code = frame.f_code
        if code not in self._functions:
            return None
        forms: dict[str, object] = {}
        line = frame.f_lineno

        def local(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal line
            for name, value in frame.f_locals.items():
                if name in code.co_freevars or name == "_":
                    continue
                now = form(value)
                if forms.setdefault(name, now) != now:
                    self._say(code, line, f"{name} has two forms")
                    forms[name] = now
            for name in self._indexed[code].get(frame.f_lineno, ()):
                value = frame.f_locals.get(name)
                if isinstance(value, tuple) and len(value) > SHORT:
                    text = f"{name} is a tuple of {len(value)} that a computed number indexes"
                    self._say(code, frame.f_lineno, text)
            line = frame.f_lineno
            return local

        return local

    def _say(self, code: CodeType, line: int, text: str) -> None:
        self._found[f"{code.co_filename}:{line}: {text}"] = None


def tree_of(function: Any) -> ast.AST:
    """Return the syntax tree of a function, with the line numbers of its file."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    return ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)


def indexed(function: Any) -> dict[int, list[str]]:
    """Return the names that a computed number indexes, by line. The counter of a ``for`` loop is written out."""
    nodes, names = list(ast.walk(tree_of(function))), dict[int, list[str]]()
    counters = {name.id for node in nodes if isinstance(node, ast.For) for name in names_in(node.target)}
    for node in nodes:
        if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Slice):
            continue
        if isinstance(node.value, ast.Name) and {name.id for name in names_in(node.slice)} - counters:
            names.setdefault(node.lineno, []).append(node.value.id)
    return names


def names_in(node: ast.AST) -> list[ast.Name]:
    """Return the names in an expression."""
    return [part for part in ast.walk(node) if isinstance(part, ast.Name)]


# Rule 3


def grown(function: Any) -> Iterator[str]:
    """Yield the lists that grow in a loop."""
    loops = [node for node in ast.walk(tree_of(function)) if isinstance(node, (ast.For, ast.While))]
    for node in (part for loop in loops for part in ast.walk(loop)):
        called = node.func if isinstance(node, ast.Call) else None
        by_method = isinstance(called, ast.Attribute) and called.attr in GROWING
        by_sum = isinstance(node, ast.AugAssign) and isinstance(node.value, (ast.List, ast.Tuple, ast.ListComp))
        if by_method or by_sum:
            yield f"{function.__code__.co_filename}:{node.lineno}: a list grows in a loop"


NEEDS_MORE = ("integrator", "specimen", "actuator", "rig", "setup")
"""Families whose ``kernel_of`` takes more than parameters, or whose kernels belong to objects."""


def has_kernel(family: str, name: str) -> bool:
    cls = registry.load(family, name)
    kernel_of = getattr(cls, "kernel_of", None)
    # the base classes of actuators and rigs have a kernel_of that returns None
    if family not in FAMILIES or kernel_of is None or kernel_of.__qualname__.startswith(("Actuator.", "Rig.")):
        return False
    params = from_data(cls.Params, data_of(family, name), family)
    return family in NEEDS_MORE or name == "chain" or kernel_of(params) is not None


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
    keep_their_own_numbers(*(defined(text.format(gain), tmp_path / f"{gain}.py")["step"] for gain in (2.0, 3.0)))


def scaled(inner: Any, gain: float) -> Any:
    def step(x: float) -> Any:
        return gain * inner(x)

    return step


def test_nested_kernels_of_one_factory_keep_their_own_numbers() -> None:
    keep_their_own_numbers(*(scaled(scaled(abs, gain), 1.0) for gain in (2.0, 3.0)))


def keep_their_own_numbers(first: Any, second: Any) -> None:
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
