# SPDX-License-Identifier: Apache-2.0
"""Tests of statements and expressions of kernels: same bits in Python and C, or a refusal with file and line."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driven_kernels import same
from in_c import compiled, defined
from messages import mentions

from rths_nodes.codegen.values import Untranslatable
from rths_nodes.core import arithmetic
from rths_nodes.core.arithmetic import matvec_into, numbers

NOTHING = None


def swapped(a: Any, b: Any, n: int) -> Any:
    for _ in range(n):
        a, b = b, a + b
    return a, b


def replaced_in_a_branch(a: Any, b: Any, n: int) -> Any:
    before, now = a * 1.0, b * 2.0
    for index in range(n):
        if index % 2 == 0:
            before, now = now, now + before
        now[0] = now[0] + 1.0
    return before, now


def exchanged_in_a_branch(a: Any, b: Any, n: int) -> Any:
    x, y = a * 1.0, b * 1.0
    for index in range(n):
        if index % 3 != 1:
            x, y = y, x
        x[index % 3] = 0.5 * y[0]
    return x, y


def replaced_before_a_break(a: Any, b: Any, n: int) -> Any:
    now, index = a * 1.0, 0
    while True:
        if index > 1:
            now = now + b
        if index == n:
            break
        index += 1
        if index % 2:
            continue
        now[1] = -now[1]
    return now, index


def replaced_in_an_inner_loop(a: Any, b: Any, n: int) -> Any:
    now = a * 1.0
    for index in range(n):
        for inner in range(index):
            if inner % 2:
                now = now + b[inner % 3] * a
        now[0] = now[0] * 0.5
    return now, now[2]


def advanced(s: Any, load: Any) -> Any:
    now, before = s
    after = now + 0.5 * load - 0.25 * before
    return (after, now), after


def shifted_by_a_call_in_a_branch(a: Any, b: Any, n: int) -> Any:
    """Example: central_difference after a soft start. The new state has an array of the old one elsewhere."""
    state, total = (a, b), 0.0
    for index in range(n):
        if index < 2:
            total = total + 1.0
        else:
            state, x = advanced(state, b)
            total = total + x[0]
    return state, total


def of_a_loop_in_one_that_is_written_out(a: Any, b: Any, n: int) -> Any:
    """Example: a rig of several blocks. Names of the inner loop belong to one pass of the outer loop."""
    total = 0.0
    for block in range(2):
        part = (a, (b[0], a[1], 2.0))[block]
        for index in range(n):
            product = part[0] * index
            if product > 1.0:
                continue
            rest = product - part[2]
            total = total + rest
    return total


def of_every_operator(a: Any, b: Any, n: int) -> Any:
    negative, x = -a, 0.5 if (n > 2 and a[0] < b[0] <= b[1]) or not n else a[n % 3]
    table = (1.0, 2.5, -3.0)
    bits = (n << 2 | 1) & 7, n >> 1, 7 % 4, n / 4
    filled = [0.0] * 3
    filled[1] += table[n % 3]
    return negative, x, bits, np.array(filled), 1 if NOTHING is None else 2


def of_items(a: Any, b: Any, n: int) -> Any:
    total, kept = 0, ()
    for x, y in zip(a, b, strict=True):
        if not x < 0.0 and y < 1e3:
            total = total + x * y
    return total, kept, max(a[0], b[0], 0.0), min(n, 2), abs(-n), len(a)


def of_views(a: Any, b: Any, n: int) -> Any:
    matrix = np.zeros((3, 3))
    matrix[1] = a
    matrix[:, 0] = b
    matrix[2, 2] = matrix[1, -1]
    return matrix.T[0:2], matrix.reshape(9), matrix[1:].copy(), a.tolist()


def of_a_long_array(a: Any, b: Any, n: int) -> Any:
    many, total, first = np.full(9, 0.25), 0.0, a[0]
    for number in many:
        total, first = total + number * first, total
    return total, np.maximum(a, b), np.minimum(first, 1.0)


def of_a_product_in_place(a: Any, b: Any, n: int) -> Any:
    matrix = np.full((3, 3), 0.5)
    matrix[0] = b
    matvec_into(a, matrix, a)
    return a


def moved_within_a_chosen_array(a: Any, b: Any, n: int) -> Any:
    chosen = a if n > 3 else b
    a[1:] = chosen[:-1]
    return a


def with_elements_in_exchange(a: Any, b: Any, n: int) -> Any:
    a[0], a[n % 3] = a[n % 3], a[0]
    (b[0], b[1]), b[2] = (b[1], b[2]), b[0]
    a[1:] = (a[2], a[0])
    return a, b


def of_deciding_operands(a: Any, b: Any, n: int) -> Any:
    either, last = n or a[0], (a[0] > 0.0 and b[0]) or b[1]
    return either, last, n and 0.5, a[1] if n > 2 else False, True if n > 2 else a[1], 1.0 if n or a[0] else 2.0


def of_indices_from_the_end(a: Any, b: Any, n: int) -> Any:
    at, total = n % 3, 0.0
    matrix, table = np.zeros((3, 2)), (1.0, 2.0, 4.0)
    for index in range(3):
        matrix[index - 2, index % 2 - 1] = a[index - 1]
        total = total + b[index] * table[index - 3]
    a[at - 1] = total
    return a, a[at - 2], matrix, (n - 4) % 3, (at - 1) % 3, (n - 4) % -3


def of_a_view_in_each_pass(a: Any, b: Any, n: int) -> Any:
    x = a
    for _ in range(n):
        x = x + b
        part = x[1:]
        part[0] = 0.5
    return x


def of_lists(a: Any, b: Any, n: int) -> Any:
    forces = numbers(a)
    longer = forces[1:] + [b[0]] + [0.0] * 2
    part = forces[:2]
    forces[0] = b[1]
    return longer, part, forces, len([1.0] * 2 + a.tolist())


def of_integers(a: Any, b: Any, n: int) -> Any:
    counts = [0] * 3
    for index in range(n):
        counts[index % 3] += index
    filled = np.full(3, n)
    filled[0] = 7
    return counts, filled, np.array((n, 2)), np.array((n, 0.5))


def of_arrays_of_other_values(a: Any, b: Any, n: int) -> Any:
    forces = numbers(a)
    loads = np.asarray(forces)
    forces[0] = 2.0
    filled = np.full(3, n, float)
    filled[0] = operator.sub(a[0], 0.5)
    sums = np.asarray((a[0], a[1])) + np.asarray((b[0], b[1])), operator.add(a, b), operator.truediv(a, b)
    return loads, filled, sums, np.zeros(2, float)


def of_calls_between(a: Any, b: Any, n: int) -> Any:
    return 0.0 < abs(a[0]) < 1.5, 0.0 <= max(a[1], b[1]) <= min(n, 3.0)


def choosing_arrays(a: Any, b: Any, n: int) -> Any:
    chosen = a + b if n > 3 else a * b
    return chosen, (a if n > 3 else b)[0]


def amplifier(gains: tuple[float, ...]) -> Callable[..., Any]:
    def amplified(a: Any, b: Any, n: int) -> Any:
        return gains[n % 3] * a[0]

    return amplified


def doubled(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def twice(a: Any, b: Any, n: int) -> Any:
        return 2.0 * function(a, b, n)

    return twice


def doubled_by_star(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def twice(*arguments: Any) -> Any:
        return 2.0 * function(*arguments)

    return twice


@doubled
def decorated(a: Any, b: Any, n: int) -> Any:
    return a[0] * b[0]


@doubled_by_star
def decorated_by_a_star(a: Any, b: Any, n: int) -> Any:
    return a[0] * b[0]


FUNCTIONS = [
    *(decorated, amplifier((1.0, 2.0, 4.0)), swapped, replaced_in_a_branch, exchanged_in_a_branch),
    *(replaced_before_a_break, replaced_in_an_inner_loop, shifted_by_a_call_in_a_branch),
    *(of_a_loop_in_one_that_is_written_out, of_every_operator, of_items, of_views, of_a_long_array),
    *(choosing_arrays, moved_within_a_chosen_array, of_a_product_in_place, with_elements_in_exchange),
    *(of_deciding_operands, of_indices_from_the_end, of_lists, of_integers),
    *(of_a_view_in_each_pass, of_arrays_of_other_values, of_calls_between),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_plain_and_compiled_give_the_same_bits(function: Callable[..., Any]) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, 3))
    in_c = compiled(function, (a, b, 4), (False, False, False))
    for n in (0, 1, 2, 3, 4, 7):
        a, b = rng.standard_normal((2, 3))
        assert same(in_c(a.copy(), b.copy(), n), function(a.copy(), b.copy(), n)), n


def shift(target: Any, source: Any) -> None:
    target[1:] = source[:-1]


def with_a_default(a: Any, b: Any, n: int, gain: float = 2.0) -> Any:
    return gain * n


def moved_on(a: Any) -> Any:
    a[0] = a[0] + 1.0
    return a[0]


def halved(a: Any) -> Any:
    a[:] = a * 0.5
    return a


def one_of(a: Any, b: Any, n: int) -> Any:
    if n > 2:
        return a
    return b


LATER = 4.0
"""Has the name of a local variable."""
GAINS = np.array([0.25, -2.0, 3.0])
REFUSED = """
def of_an_element_of_a_list(a, b, n):
    doubled = a[0] * 2.0
    pair = [doubled, 1.0]
    pair[0] = 5.0  # elements
    return doubled

def with_a_float_among_integers(a, b, n):
    counts = [0] * 3
    counts[1] = a[0]  # integers
    return counts

def with_a_type(a, b, n):
    return np.zeros(3, int)  # np.zeros, np.full and np.empty must have no dtype except float

def of_too_many_arguments(a, b, n):
    return np.array((1.0, 2.0), float)  # array cannot have 2 arguments

def of_two_lists(a, b, n):
    return numbers(a) - numbers(b)  # Sub

def of_an_array_and_a_tuple(a, b, n):
    return a + (1.0, 2.0, 3.0)  # Add

def of_a_step(a, b, n):
    for index in range(0, 4, 2):  # step
        a[0] = a[0] + index
    return a

def of_two_lengths(a, b, n):
    return dot(a, b[1:])  # dot()

def with_too_many_columns(a, b, n):
    return matvec(np.zeros((2, 2)), a)  # (2, 2)

def with_too_few_elements(a, b, n):
    a[:2] = b  # (3,)
    return a

def with_too_few_places(a, b, n):
    a[:] = (1.0, 2.0)  # 3 elements
    return a

def of_a_call_between(a, b, n):
    return 0.0 < moved_on(a) < 1.0  # call

def of_arrays_that_a_loop_exchanges(a, b, n):  # second name
    x, y = a, b
    for _ in range(n):
        x, y = y, x
    x[0] = 9.0
    return a, b

def of_an_array_that_a_loop_shares(a, b, n):  # second name
    x, y = a * 1.0, b * 2.0
    for _ in range(n):
        x = halved(y)
    y[0] = 9.0
    return x, y

def of_an_array_that_a_call_chooses(a, b, n):  # second name
    chosen = one_of(a, b, n)
    chosen[0] = 9.0
    return a, b

def powers(a, b, n):
    return a[0] ** 2.0  # Pow

def of_two_forms(a, b, n):
    value = a[0]
    if n > 2:
        value = b
    return value  # value

def with_a_float(a, b, n):
    return a[0.5 * n]  # float

def with_text(a, b, n):
    return "text".join(a)  # built-in method join of str object is not

def with_a_condition(a, b, n):
    return tuple([x for x in a if x > 0.0])  # condition

def by_itself(a, b, n):
    return by_itself(a, b, n)  # by_itself

def after_its_loop(a, b, n):
    for index in range(n):
        a[index % 3] = 0.0
    return index  # index

def of_two_nestings(a, b, n):
    if n > 2:
        return (1.0, 2.0), 3.0  # form
    return 1.0, (2.0, 3.0)

def before_its_loop(a, b, n):
    for index in range(n):
        if index > 0:
            a[0] = LATER  # LATER
        LATER = b[0]
    return a

def without_its_default(a, b, n):
    return with_a_default(a, b, n)  # 4 arguments

def of_an_array_of_its_module(a, b, n):
    return a[0] * GAINS[1]  # GAINS

def with_a_break(a, b, n):
    for x in a:
        if x > 0.0:
            break  # break
    return n

def with_an_else(a, b, n):
    for index in range(n):  # else
        if a[index % 3] > 0.0:
            break
    else:
        n = -1
    return n

def of_one_array_twice(a, b, n):
    shift(a, a)  # two of its arguments
    return a
"""
"""Functions without a form in C; the refused line has a part of the reason."""


def refusal(function: Callable[..., Any]) -> str:
    with pytest.raises(Untranslatable) as refused:
        compiled(function, (np.zeros(3), np.zeros(3), 4), (False, False, False))
    return str(refused.value)


@pytest.mark.parametrize("name", re.findall(r"^def (\w+)", REFUSED, re.M))
def test_function_without_c_form_is_refused(name: str, tmp_path: Path) -> None:
    source = tmp_path / "example.py"
    text = refusal(defined(REFUSED, source, **(vars(arithmetic) | globals()))[name])
    before, _, after = REFUSED.partition(f"def {name}(")
    marked = (before + after.partition("  # ")[0]).count("\n") + 1
    assert f"{source}:{marked}: " in text
    assert REFUSED.splitlines()[marked - 1].partition("  # ")[2] in text


def test_decorator_with_arguments_by_star_is_refused() -> None:
    text = refusal(decorated_by_a_star)
    assert f"{__file__}:{decorated_by_a_star.__code__.co_firstlineno + 1}: " in text
    assert mentions(text, "decorated_by_a_star: twice", "arguments by *")
