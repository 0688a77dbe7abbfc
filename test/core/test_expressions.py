# SPDX-License-Identifier: Apache-2.0
"""Tests of expressions: values, units, renaming, and refusals of any other syntax."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import naming

from rths_nodes.core.expressions import FUNCTIONS, LONGEST, Expression, renamed, unit_of

NAMES = {
    "force": {"north": (0, unit_of("N")), "south 2": (1, unit_of("N"))},
    "piston_velocity": {"north": (2, unit_of("m/s"))},
    "displacement": {"north": (3, unit_of("m"))},
}
VALUES = [2e3, -3e3, 0.5, 0.004]


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("abs(force.north * piston_velocity.north)", 1e3, "W"),
        ('force["south 2"] - force.north', -5e3, "N"),
        ("2.5 * displacement.north ** 2", 4e-5, "m^2"),
        ('force.north - si(2, "kN/mm") * displacement.north', -6e3, "N"),
        ('min(force.north, force["south 2"], si(1, "kN"))', -3e3, "N"),
        ("hypot(force.north, force.north)", 2e3 * math.sqrt(2.0), "N"),
        ("sqrt(displacement.north ** 2)", 0.004, "m"),
        ('sign(force["south 2"]) * piston_velocity.north ** -1', -2.0, "m^-1*s"),
        ("force.north / max(abs(displacement.north), si(0.1, 'mm')) / si(1, 'N/m')", 5e5, "1"),
    ],
)
def test_expression_has_value_and_unit(text: str, value: float, unit: str) -> None:
    expression = Expression(text, NAMES)
    assert expression.value(VALUES) == pytest.approx(value, rel=1e-15)
    assert expression.unit.dimension == unit


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("force.north + displacement.north", ("N", "m")),
        ("force.north + 3", ('si(2, "N")',)),
        ("force.east", ("north", "south", "2")),
        ("pressure.north", ("force", "piston_velocity", "displacement")),
        ("sqrt(force.north)", ("N", "root")),
        ("force.north ** 0.5", ("whole", "number")),
        ("force.north ** 9", ("1", "4")),
        ("9 ** 9 ** 9", ("whole", "number")),
        ("si(2, 'furlong')", ("furlong", "1", "m", "N")),
        ("max(force.north)", ("max", "2", "8", "numbers")),
        ("force.north > 3", ("not allowed",)),
        ("__import__('os').system('true')", ("unknown function",)),
        ("().__class__.__bases__", ("unknown quantity",)),
        ("force.north.__class__", ("unknown quantity",)),
        ("(lambda: 1)()", ("unknown function",)),
        ("[force.north for x in (1,)]", ("not allowed",)),
        ("'a' * 10**9", ("not a number",)),
        ("True", ("not a number",)),
        ("1e999", ("too large",)),
        ("v[0]", ("unknown quantity",)),
        ("force.north\x00", ("not an expression",)),
        ("(" * 300, ("not an expression",)),
        ("-" * 400 + "1", ("parts", "<= 100")),
        ("+".join(["1"] * 300), ("characters", f"<= {LONGEST}")),
        ("", ("not an expression",)),
    ],
)
def test_invalid_expression_is_refused(text: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=naming(*parts)):
        Expression(text, NAMES)


@pytest.mark.parametrize("text", ["1 / (force.north - force.north)", "sqrt(-1 * force.north / force.north)"])
def test_undefined_arithmetic_gives_nan(text: str) -> None:
    assert math.isnan(Expression(text, NAMES).value(VALUES))


def test_nan_passes_through_functions() -> None:
    for name, (_, least, _) in FUNCTIONS.items():
        arguments = ", ".join(["force.north", 'force["south 2"]'][:least])
        for index in range(least):
            values = [math.nan if n == index else 1.0 for n in range(4)]
            root = f"{name}({arguments.replace('north', 'north * force.north')})" if name == "sqrt" else ""
            assert math.isnan(Expression(root or f"{name}({arguments})", NAMES).value(values)), name


PIECES = (
    *("force.north", "displacement.north", 'force["south 2"]', "1", "2.5", "si(3, 'mm')", "+", "-", "*", "/"),
    *("**", "(", ")", ",", "abs(", "max(", "sqrt(", "import", "lambda", "v", "[", "]", ".", ":", " if ", "__"),
    *("'", "for"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=20))
def test_random_text_gives_value_or_value_error(pieces: list[str]) -> None:
    """A valid expression uses only the values that it names."""
    try:
        expression = Expression("".join(pieces), NAMES)
    except ValueError:
        return
    values = [random.Random(n).uniform(-1.0, 1.0) if n in expression.places else None for n in range(4)]
    assert isinstance(expression.value(values), (float, int))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "factor", "dimension"),
    [("kN*mm", 1.0, "J"), ("kN/mm", 1e6, "kg*s^-2"), ("m/s^2", 1.0, "m*s^-2"), ("kW", 1e3, "W"), ("1", 1.0, "1")],
)
def test_units_are_products_of_powers(text: str, factor: float, dimension: str) -> None:
    unit = unit_of(text)
    assert (unit.factor, unit.dimension) == (pytest.approx(factor), dimension)


@pytest.mark.parametrize("text", ["", "N/", "N**2", "N^m", "Nm", "m^99", "m^9*m^9"])
def test_invalid_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a unit|power above"):
        unit_of(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abs(force.a * force['b'])", "abs(force.north * force['south 2'])"),
        ("force.b - force.a", "force['south 2'] - force.north"),  # both at once
        ("force.c + channel.a", "force.c + channel.a"),
        ("  force.c  +1", "  force.c  +1"),
        ("force.a *", "force.a *"),
        ("-" * (LONGEST - 8) + "force.a", "-" * (LONGEST - 8) + "force.a"),
    ],
)
def test_names_in_expression_are_replaced(text: str, expected: str) -> None:
    assert renamed(text, {"a": "north", "b": "south 2"}, ("force",)) == expected


def test_exchanged_names_preserve_value() -> None:
    text = "force.south_2 ** 2 / max(force['north'], si(1, 'N'))"
    names = {"south_2": "north", "north": "south 2"}
    twin = {"force": {"south_2": NAMES["force"]["north"], "north": NAMES["force"]["south 2"]}}
    assert Expression(renamed(text, names, ("force",)), NAMES).value(VALUES) == Expression(text, twin).value(
        VALUES
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abs(force.a  # north\n - 3 * force.b)", "abs(force.b  # north\n - 3 * force.a)"),
        ("abs(force.a\r\n - 3 * force.b)", "abs(force.b\r\n - 3 * force.a)"),
        ("force.a - \\\n 2 * force['b']", "force.b - \\\n 2 * force.a"),
    ],
    ids=["comment", "carriage return", "continued line"],
)
def test_names_are_replaced_on_continued_lines(text: str, expected: str) -> None:
    assert renamed(text, {"a": "b", "b": "a"}, {"force"}) == expected
