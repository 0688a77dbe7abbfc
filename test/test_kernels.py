# SPDX-License-Identifier: Apache-2.0
"""Kernels: plain and compiled text give the same bits, and nothing stands in one that would not.

A component with a kernel is tested by being registered; a family needs its inputs in driven_kernels.py, once.
"""

from __future__ import annotations

import math
import re
import textwrap
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
from rths_nodes.core.arithmetic import numbers
from rths_nodes.core.kernels import copied
from rths_nodes.core.samples import Motion
from rths_nodes.core.validation import from_data

BASES = ("Actuator.", "Rig.")
"""Classes whose ``kernel_of`` says that there is none."""
NEEDS_MORE = ("integrator", "specimen", "actuator", "rig")
"""Families whose ``kernel_of`` takes more than parameters."""


def has_kernel(family: str, name: str) -> bool:
    cls = registry.load(family, name)
    own = getattr(cls, "kernel_of", None)
    if family not in FAMILIES or own is None or own.__qualname__.startswith(BASES):
        return False
    return family in NEEDS_MORE or own(from_data(cls.Params, data_of(family, name), family)) is not None


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
"""Further parameters that make another text, or another way through it."""
WITH_KERNEL = [
    (*pair, data) for pair in COMPONENTS for data in (data_of(*pair), *VARIANTS.get(pair, [])) if has_kernel(*pair)
]
every_kernel = pytest.mark.parametrize(
    ("family", "name", "data"), WITH_KERNEL, ids=["-".join(each[:2]) for each in WITH_KERNEL]
)


def made(family: str, name: str, data: dict[str, Any], seed: int, extreme: bool) -> Any:
    cls = registry.load(family, name)
    params = from_data(cls.Params, data, family)
    return FAMILIES[family](cls, params, np.random.default_rng(seed), extreme)


def learns_two_axes(data: dict[str, Any]) -> bool:
    return data.get("inverse") is TWO_AXES["inverse"] and data.get("learning", True)


TO_COMPILE = [
    pytest.param(*each, id="-".join(each[:2]), marks=[pytest.mark.soak] * learns_two_axes(each[2]))
    for each in WITH_KERNEL
]
"""Forms that learn two axes take 15 s each."""


@pytest.mark.parametrize("extreme", [False, True], ids=["random", "extreme"])
@pytest.mark.parametrize(("family", "name", "data"), TO_COMPILE)
def test_plain_and_compiled_give_the_same_bits(family: str, name: str, data: Any, extreme: bool) -> None:
    agree(*made(family, name, data, 7, extreme))


@every_kernel
def test_random_inputs_keep_to_finite_numbers(family: str, name: str, data: Any) -> None:
    """So that more than nan is compared."""
    kernel, constants, rows = made(family, name, data, 7, False)
    state = copied(kernel.rest(constants))
    for inputs in rows:
        state, found = kernel.step(constants, state, *inputs)
        assert np.isfinite(flat(found)).all()
        assert np.isfinite(flat(state)).all()


@every_kernel
def test_a_copied_state_is_a_second_one(family: str, name: str, data: Any) -> None:
    kernel, constants, rows = made(family, name, data, 3, False)
    state = copied(kernel.rest(constants))
    for inputs in rows[:5]:
        state, _ = kernel.step(constants, state, *inputs)
    twin = copied(state)
    before = flat(copied(state))
    for inputs in rows[5:20]:
        twin, _ = kernel.step(constants, twin, *inputs)
    assert same(flat(state), before)
    assert isinstance(state, tuple)


@every_kernel
def test_nothing_stands_in_a_kernel_that_has_no_defined_bits(family: str, name: str, data: Any) -> None:
    kernel, _, _ = made(family, name, data, 1, False)
    found = {each.__qualname__: wrong_in(each) for each in functions_of(kernel.step, {}).values()}
    assert {name: words for name, words in found.items() if words} == {}


@every_kernel
def test_the_functions_of_a_kernel_state_their_purpose(family: str, name: str, data: Any) -> None:
    """Their comments in C are the first paragraphs of their docstrings."""
    kernel, _, _ = made(family, name, data, 1, False)
    assert [where for each in functions_of(kernel.step, {}).values() if (where := without_purpose(each))] == []


@every_kernel
def test_a_kernel_keeps_the_rules_of_its_c_form(family: str, name: str, data: Any) -> None:
    kernel, constants, rows = made(family, name, data, 7, False)
    assert broken(kernel.step, constants, copied(kernel.rest(constants)), rows[:25]) == []


RULE_BREAKERS = {
    "an array in two places": (
        4,
        """
        a, b = s
        a[0] = a[0] + x
        return (a, a), b[0]
    """,
    ),
    "an array of the constants": (
        4,
        """
        a, b = s
        a[0] = a[0] + x
        return (k[0], b), a[0]
    """,
    ),
    "an array behind a branch": (
        7,
        """
        a, b = s
        c = b
        if x > 0.0:
            c = a
        c[0] = c[0] + x
        return (c, b), a[0]
    """,
    ),
    "a name of two forms": (
        5,
        """
        y = x
        if x > 0.0:
            y = np.zeros(2)
        return s, y
    """,
    ),
    "a list that grows": (
        4,
        """
        grown = []
        for _ in range(2):
            grown.append(x)
        return s, x
    """,
    ),
    "a tuple of arrays by a computed number": (
        5,
        """
        place = 0
        while place < 1 and x > 0.0:
            place += 1
        return s, s[place][0]
    """,
    ),
}
"""Kernels that break a rule, and the line that breaks it, counted from the first one of the function."""


@pytest.mark.parametrize("rule", RULE_BREAKERS)
def test_a_broken_rule_is_reported_with_file_and_line(rule: str, tmp_path: Path) -> None:
    line, body = RULE_BREAKERS[rule]
    source = tmp_path / "theirs.py"
    source.write_text(f"def step(k, s, x):{textwrap.indent(textwrap.dedent(body), '    ')}", encoding="utf-8")
    space: dict[str, Any] = {"np": np, "__name__": "rths_nodes.theirs"}
    exec(compile(source.read_text(encoding="utf-8"), str(source), "exec"), space)

    def arguments(x: float) -> tuple[Any, ...]:
        return (np.ones(2),), (np.array([1.0, 2.0]), np.array([3.0, 4.0])), x

    with pytest.raises(Untranslatable) as refused:
        compiled(space["step"], arguments(0.5), (True, False, False))
    assert mentions(str(refused.value), f"{source}:{line}:")
    if "computed" not in rule:  # a short tuple may be indexed
        reported = broken(space["step"], *arguments(0.5)[:2], [(-0.5,), (0.5,)])
        assert any(f"{source}:{line if 'list' in rule else ''}" in words for words in reported)


def test_a_long_tuple_by_a_computed_number_is_reported(tmp_path: Path) -> None:
    source = tmp_path / "theirs.py"
    text = "def step(k, s, x):\n    place = 0\n    place += 1\n    return s, k[place]\n"
    source.write_text(text, encoding="utf-8")
    space: dict[str, Any] = {"__name__": "rths_nodes.theirs"}
    exec(compile(text, str(source), "exec"), space)
    (words,) = broken(space["step"], (0.5,) * 20, (), [(0.5,)])
    assert words.startswith(f"{source}:4: k ")


@pytest.mark.parametrize("call", ["math.exp(x)", "x ** 2.0", "sum((x, x))", "round(x)", "hypot(x, x)"])
def test_the_fence_sees_what_is_barred(call: str, tmp_path: Any) -> None:
    source = tmp_path / "barred.py"
    source.write_text(f"import math\n\ndef step(k, s, x):\n    return s, {call}\n", encoding="utf-8")
    space: dict[str, Any] = {}
    exec(compile(source.read_text(encoding="utf-8"), str(source), "exec"), space)
    assert wrong_in(space["step"]) != []


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
def test_an_array_is_read_when_python_reads_it(function: Any) -> None:
    quick = compiled(function, (np.zeros(2), 5.0), (False, False))
    assert same(function(np.array([1.0, 2.0]), 5.0), quick(np.array([1.0, 2.0]), 5.0))


# The arithmetic itself

ONE_ARGUMENT = [getattr(arithmetic, name) for name in ("exp", "tanh", "sqrt", "sin", "cos", "rounded")]
EDGES = (*EXTREMES, 2.5, -2.5, 0.5, 1.5, 709.7, 709.79, 710.0, -746.0, 4503599627370495.5, 9.1e15)


@pytest.mark.parametrize("function", ONE_ARGUMENT, ids=lambda each: each.__name__)
def test_elementary_functions_have_a_value_for_every_float(function: Any) -> None:
    def value(x: float) -> Any:
        return function(x)

    quick, rng = compiled(value, (0.5,), (False,)), np.random.default_rng(1)
    for x in (*EDGES, *(rng.standard_normal(3000) * 10.0 ** rng.uniform(-8, 8, 3000)).tolist()):
        assert same(function(x), quick(x)), x


def test_powers_have_a_value_for_every_float() -> None:
    quick, rng = compiled(arithmetic.power, (0.5, 2.5), (False, False)), np.random.default_rng(1)
    for x in (*EDGES, *rng.uniform(0.0, 1e3, 2000).tolist()):
        for exponent in (0.01, 1.0, 2.0, 2.5, 100.0):
            assert same(arithmetic.power(x, exponent), quick(x, exponent)), (x, exponent)
    assert arithmetic.power(3.0, 2.5) == 3.0**2.5
    assert arithmetic.power(1e300, 2.0) == math.inf


def test_whole_numbers_are_those_of_round() -> None:
    rng = np.random.default_rng(2)
    values = (*(rng.standard_normal(5000) * 10.0 ** rng.uniform(-3, 14, 5000)).tolist(), 0.5, 1.5, -2.5, 2.5)
    for x in values:
        assert arithmetic.rounded(x) == float(round(x))


def product_of(matrix: Any, vector: Any) -> Any:
    return arithmetic.matvec(matrix, vector)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 2), (12, 12), (2, 40), (1, 100), (17, 3), (29, 87)])
def test_a_product_is_summed_from_left_to_right(shape: tuple[int, int], order: Any) -> None:
    rng = np.random.default_rng(3)
    matrix, vector = np.array(rng.standard_normal(shape), order=order), rng.standard_normal(shape[1])
    matrix[-1] = -0.0
    found = arithmetic.matvec(matrix, vector)
    assert same(found, compiled(product_of, (matrix, vector), (False, False))(matrix, vector))
    assert found.tolist() == [arithmetic.dot((0.0, *row), (0.0, *vector.tolist())) for row in matrix.tolist()]
    np.testing.assert_allclose(found, matrix @ vector, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(("n", "count"), [(1, 5), (3, 3), (6, 3)])
def test_a_product_in_groups_is_that_product(n: int, count: int) -> None:
    """The last one has too many products to be written out."""
    from rths_nodes.core.arithmetic import groups

    like = ((0.0,) * n,) * count

    def product(matrix: Any, known: Any) -> Any:
        return groups(like, matrix, known)

    rng = np.random.default_rng(n)
    matrix, known = np.asfortranarray(rng.standard_normal((count * n, 4 * n))), rng.standard_normal(4 * n)
    matrix[n] = -0.0
    wanted = arithmetic.matvec(matrix, known)
    for vector in (known, tuple(known.tolist())):
        for form in (product, compiled(product, (matrix, vector), (False, False))):
            assert same(np.concatenate(form(matrix, vector)), wanted)


# The page that teaches the form


def test_the_law_of_the_components_page_is_the_same_in_both_forms(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    page = (Path(__file__).parents[1] / "doc" / "components.md").read_text(encoding="utf-8")
    laws, texts = [], re.findall(r"```python\n(.*?)```", page, re.S)
    for place, text in enumerate(each for each in texts if "class Feedforward" in each):
        file = tmp_path / str(place) / "feedforward.py"
        file.parent.mkdir()
        file.write_text(text, encoding="utf-8")
        space: dict[str, Any] = {"__name__": "my_lab.feedforward"}
        exec(compile(text, str(file), "exec"), space)
        law = space["Feedforward"]
        laws.append(law(law.Params(delay=0.02), DT, 2))
    assert len(laws) == 2
    rng = np.random.default_rng(5)
    for _ in range(20):
        target, measured = Motion(*rng.standard_normal((3, 2)), force=np.zeros(2)), rng.standard_normal(2)
        assert same(laws[0].step(target, measured), laws[1].step(target, measured))
    assert wrong_in(space["step"]) == []
    inputs = [0.02, 0.0, 0.0, 0.0, 0.0, 0.0, False, False]
    quick = compiled(space["step"], ((0.02,), (), *inputs[1:]), (True, False, *[False] * 7))
    assert same(quick((0.02,), (), 1.0, 0.5, *inputs[3:]), space["step"]((0.02,), (), 1.0, 0.5, *inputs[3:]))
    (shown,) = re.findall(r"```c\n(.*?)```", page, re.S)
    assert shown in next(tmp_path.rglob("*.c")).read_text(encoding="utf-8")
