# SPDX-License-Identifier: Apache-2.0
"""Expressions over named quantities: ``abs(force.north * piston_velocity.north)``.

Expressions are a subset of Python's arithmetic: numbers, quantities by name (``force.north``, ``force["north
2"]``), ``+ - * /``, powers with small integer exponents, and the functions in FUNCTIONS. ``si(2, "kN/m")`` is a
constant with a unit. Any other syntax is refused before compilation. An expression can therefore neither loop nor
access other data. Sums of incompatible units are refused. Values are in SI units. Undefined results are NaN.

A unit is a product of named units, e.g. N/m and kN*mm, with a factor to SI and powers of metre, kilogram, second
and volt.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from keyword import iskeyword
from typing import Any, NamedTuple

from rths_nodes.core.errors import counted

LENGTHS = {"m": 1.0, "mm": 1e-3, "cm": 1e-2, "um": 1e-6, "in": 0.0254, "ft": 0.3048}
FORCES = {"N": 1.0, "kN": 1e3, "MN": 1e6, "lbf": 4.4482216152605, "kip": 4448.2216152605}
VELOCITIES = {f"{name}/s": factor for name, factor in LENGTHS.items()}
ACCELERATIONS = {"m/s^2": 1.0, "g": 9.80665}
PRESSURES = {"Pa": 1.0, "kPa": 1e3, "bar": 1e5, "MPa": 1e6, "psi": 6894.757293168361}
OTHERS = {"V": 1.0, "1": 1.0}
"""Units with no conversion; "1" is dimensionless, e.g. for a digital input."""

SI: dict[str, tuple[float, str]] = {
    unit: (factor, next(iter(table)))
    for table in (LENGTHS, FORCES, ACCELERATIONS, PRESSURES)
    for unit, factor in table.items()
} | {unit: (factor, unit) for unit, factor in OTHERS.items()}
"""Unit -> factor that converts a value to the SI unit, and this SI unit."""

BASES = ("m", "kg", "s", "V")
LARGEST_POWER = 12
_FACTOR = re.compile(r"([A-Za-z]+|1)(?:\^(-?\d{1,2}))?")


def plain_unit(text: str) -> str:
    """Convert a unit to the notation of this package: m/s², m/s/s, m/s2, m/s**2 and m.s-2 become m/s^2."""
    name = text.strip().replace("²", "^2").replace("**", "^").replace(" ", "").replace("/s/s", "/s2")
    name = re.sub(r"[.*]?s\^?-(\d)$", r"/s\1", name)
    return re.sub(r"/s(\d)$", r"/s^\1", name).removesuffix("^1")


class Unit(NamedTuple):
    factor: float
    powers: tuple[int, ...]

    def times(self, other: Unit, power: int = 1) -> Unit:
        """Return this unit times ``other**power``. Raises ValueError if a power exceeds LARGEST_POWER."""
        powers = tuple(a + power * b for a, b in zip(self.powers, other.powers, strict=True))
        if max(map(abs, powers)) > LARGEST_POWER:
            raise ValueError(f"the unit has a power above {LARGEST_POWER}")
        return Unit(self.factor * other.factor**power, powers)

    @property
    def dimension(self) -> str:
        named_unit = next((name for name, unit in _NAMED.items() if unit == (1.0, self.powers)), "")
        bases = [
            base if power == 1 else f"{base}^{power}"
            for base, power in zip(BASES, self.powers, strict=True)
            if power
        ]
        return named_unit or "*".join(bases) or "1"


def _unit(factor: float, m: int = 0, kg: int = 0, s: int = 0, volt: int = 0) -> Unit:
    return Unit(factor, (m, kg, s, volt))


NUMBER = _unit(1.0)
_NAMED = {
    "1": NUMBER,
    "m": _unit(1.0, m=1),
    "N": _unit(1.0, m=1, kg=1, s=-2),
    "W": _unit(1.0, m=2, kg=1, s=-3),
    "J": _unit(1.0, m=2, kg=1, s=-2),
    "Pa": _unit(1.0, m=-1, kg=1, s=-2),
    "s": _unit(1.0, s=1),
    "Hz": _unit(1.0, s=-1),
    "kg": _unit(1.0, kg=1),
    "V": _unit(1.0, volt=1),
}
UNITS = {
    **_NAMED,
    **{name: _unit(factor, m=1) for name, factor in LENGTHS.items()},
    **{name: _unit(factor, m=1, kg=1, s=-2) for name, factor in FORCES.items()},
    **{name: _unit(factor, m=-1, kg=1, s=-2) for name, factor in PRESSURES.items()},
    **{"kW": _unit(1e3, m=2, kg=1, s=-3), "kJ": _unit(1e3, m=2, kg=1, s=-2), "t": _unit(1e3, kg=1)},
    **{"ms": _unit(1e-3, s=1), "g": _unit(9.80665, m=1, s=-2), "samples": NUMBER},
}


def unit_of(text: str) -> Unit:
    """Parse a unit: names with optional powers, separated by ``*`` or ``/``. Raises ValueError if invalid."""
    unit, sign = NUMBER, 1
    for part in re.split(r"([*/])", text.replace(" ", "")):
        if part in ("*", "/"):
            sign = 1 if part == "*" else -1
            continue
        factor = _FACTOR.fullmatch(part)
        if factor is None or factor[1] not in UNITS:
            raise ValueError(
                f"{part!r} is not a unit; known: {', '.join(UNITS)}, combined by * and /, with ^ for a power"
            )
        unit = unit.times(UNITS[factor[1]], sign * int(factor[2] or 1))
    return unit


LONGEST, MOST_TERMS, LARGEST_EXPONENT = 500, 100, 4
"""Largest length (characters), number of syntax-tree nodes, and exponent of an expression."""


def _sign(value: float) -> float:
    return value if math.isnan(value) else float((value > 0.0) - (value < 0.0))


FUNCTIONS: dict[str, tuple[Callable[..., float], int, int]] = {
    "abs": (abs, 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "sign": (_sign, 1, 1),
    "hypot": (math.hypot, 2, 2),
    "min": (lambda *values: math.nan if any(map(math.isnan, values)) else min(values), 2, 8),
    "max": (lambda *values: math.nan if any(map(math.isnan, values)) else max(values), 2, 8),
}
CONSTANT = "si"
Names = Mapping[str, Mapping[str, tuple[int, Unit]]]
"""Noun (``force``) -> owner (``north``) -> index of the quantity's value, and unit of the quantity."""


class Expression:
    """Evaluates the expression ``text`` over the quantities ``names``. Raises ValueError for invalid text."""

    def __init__(self, text: str, names: Names) -> None:
        self.text, self._names = text, names
        self._places: dict[int, None] = {}
        self.unit, made = self._read(_parsed(text).body)
        self.places = tuple(self._places)
        tree: Any = ast.parse("lambda v: 0.0", mode="eval")
        tree.body.body = made
        code = compile(ast.fix_missing_locations(tree), "<expression>", "eval")
        functions = {name: function for name, (function, *_) in FUNCTIONS.items()}
        self._value: Callable[[Sequence[float]], float] = eval(code, {"__builtins__": {}} | functions)

    def value(self, values: Sequence[float]) -> float:
        """Return the value in SI units, or NaN if undefined. ``values`` are in the units of the quantities."""
        try:
            return self._value(values)
        except (ArithmeticError, ValueError):
            return math.nan

    def _read(self, node: ast.expr) -> tuple[Unit, ast.expr]:
        if isinstance(node, ast.Constant):
            return NUMBER, ast.Constant(_number(node))
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            return self._quantity(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            unit, made = self._read(node.operand)
            return unit, ast.UnaryOp(node.op, made)
        if isinstance(node, ast.BinOp):
            return self._operation(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        example = next((f"{noun}.{owner}" for noun, owners in self._names.items() for owner in owners), "none")
        raise ValueError(
            f"{ast.unparse(node)!r} is not allowed. Use only numbers, quantities such as {example}, + - "
            f"* / **, {', '.join(FUNCTIONS)}, and {CONSTANT}(number, unit)"
        )

    def _quantity(self, node: ast.Attribute | ast.Subscript) -> tuple[Unit, ast.expr]:
        noun, whose = _owned(node)
        if noun not in self._names:
            raise ValueError(f"{ast.unparse(node)!r}: unknown quantity; known: {', '.join(self._names)}")
        if whose not in self._names[noun]:
            choices = ", ".join(self._names[noun]) or "none"
            raise ValueError(f"{ast.unparse(node)!r}: unknown {noun}; known: {choices}")
        index, unit = self._names[noun][whose]
        self._places[index] = None
        value: ast.expr = ast.Subscript(ast.Name("v", ast.Load()), ast.Constant(index), ast.Load())
        if unit.factor != 1.0:
            value = ast.BinOp(value, ast.Mult(), ast.Constant(unit.factor))
        return Unit(1.0, unit.powers), value

    def _operation(self, node: ast.BinOp) -> tuple[Unit, ast.expr]:
        (left, a), source = self._read(node.left), ast.unparse(node)
        if isinstance(node.op, ast.Pow):
            power = _integer(node.right)
            return NUMBER.times(left, power), ast.BinOp(a, ast.Pow(), ast.Constant(power))
        right, b = self._read(node.right)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            _alike(source, left, right)
            unit = left
        elif isinstance(node.op, (ast.Mult, ast.Div)):
            unit = left.times(right, 1 if isinstance(node.op, ast.Mult) else -1)
        else:
            raise ValueError(f"{source!r}: the operator must be one of + - * / **")
        return unit, ast.BinOp(a, node.op, b)

    def _call(self, node: ast.Call) -> tuple[Unit, ast.expr]:
        name, source = (node.func.id if isinstance(node.func, ast.Name) else ""), ast.unparse(node)
        if name == CONSTANT:
            return _constant(node)
        if name not in FUNCTIONS:
            raise ValueError(f"{source!r}: unknown function; known: {', '.join(FUNCTIONS)}, {CONSTANT}")
        _, least, most = FUNCTIONS[name]
        if node.keywords or not least <= len(node.args) <= most:
            count = counted(least, "number") if least == most else f"{least} to {most} numbers"
            raise ValueError(f"{source!r}: {name} takes {count}")
        units, made = zip(*(self._read(argument) for argument in node.args), strict=True)
        for unit in units[1:]:
            _alike(source, units[0], unit)
        unit = units[0]
        if name == "sign":
            unit = NUMBER
        elif name == "sqrt":
            if any(power % 2 for power in unit.powers):
                raise ValueError(f"{source!r}: {unit.dimension} has no square root")
            unit = Unit(1.0, tuple(power // 2 for power in unit.powers))
        return unit, ast.Call(ast.Name(name, ast.Load()), list(made), [])


def _parsed(text: str) -> ast.Expression:
    if len(text) > LONGEST:
        raise ValueError(f"the expression has {len(text)} characters: must be <= {LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"the text is not an expression ({error.args[0] if error.args else error})") from None
    if (terms := sum(1 for _ in ast.walk(tree))) > MOST_TERMS:
        raise ValueError(f"the expression has {terms} parts: must be <= {MOST_TERMS}")
    return tree


def _owned(node: ast.AST) -> tuple[str, Any]:
    if not isinstance(node, (ast.Attribute, ast.Subscript)) or not isinstance(node.value, ast.Name):
        return "", ""
    if isinstance(node, ast.Attribute):
        return node.value.id, node.attr
    return node.value.id, node.slice.value if isinstance(node.slice, ast.Constant) else ""


def named(text: str) -> set[tuple[str, str]]:
    """Return noun and owner (``force``, ``north``) of each quantity in ``text``; empty if ``text`` is invalid."""
    try:
        pairs = map(_owned, ast.walk(_parsed(text)))
    except ValueError:
        return set()
    return {(noun, str(owner)) for noun, owner in pairs if noun}


def renamed(text: str, names: Mapping[str, str], nouns: Collection[str]) -> str:
    """Rename owners (``north`` in ``force.north``) of ``nouns`` by ``names``. Invalid ``text`` is unchanged."""
    changes: list[tuple[int, int, str]] = []
    try:
        source = text.strip().encode()
        nodes: Any = ast.walk(_parsed(source.decode()))
    except ValueError:
        return text
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]  # nodes have byte offsets within a line
    for node in nodes:
        noun, owner = _owned(node)
        new = names.get(owner, owner) if noun in nouns and isinstance(owner, str) else owner
        if new != owner:
            plain = new.isidentifier() and not iskeyword(new)
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            changes.append((begin, end, f"{noun}.{new}" if plain else f"{noun}[{new!r}]"))
    for begin, end, new in sorted(changes, reverse=True):
        source = source[:begin] + new.encode() + source[end:]
    return source.decode() if changes else text


def _number(node: ast.Constant) -> float:
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        raise ValueError(f"{node.value!r} is not a number")
    try:
        value = float(node.value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError("the expression has a number that is too large")
    return value


def _integer(node: ast.expr) -> int:
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    value = inner.value if isinstance(inner, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_EXPONENT:
        raise ValueError(
            f"the power {ast.unparse(node)} must be a whole number from 1 to {LARGEST_EXPONENT}, or the "
            "negative of such a number"
        )
    return -value if negative else value


def _constant(node: ast.Call) -> tuple[Unit, ast.expr]:
    source = ast.unparse(node)
    texts = [constant.value for constant in node.args if isinstance(constant, ast.Constant)]
    if node.keywords or len(texts) != 2 or len(node.args) != 2 or not isinstance(texts[1], str):
        raise ValueError(f'{source!r}: {CONSTANT} takes a number and its unit, such as {CONSTANT}(2, "kN/m")')
    unit, value = unit_of(texts[1]), node.args[0]
    assert isinstance(value, ast.Constant)
    return Unit(1.0, unit.powers), ast.Constant(_number(value) * unit.factor)


def _alike(source: str, left: Unit, right: Unit) -> None:
    if left.powers != right.powers:
        raise ValueError(
            f"{source!r}: {left.dimension} and {right.dimension} are incompatible. Write a constant with a unit "
            f'as {CONSTANT}(2, "N")'
        )
