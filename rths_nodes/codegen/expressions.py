# SPDX-License-Identifier: Apache-2.0
"""Translate the expressions of a kernel: operators, comparisons, subscripts, displays and calls."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

from rths_nodes.codegen.arrays import INDENT, Arrays, attribute_of
from rths_nodes.codegen.values import (
    BOOL,
    FLOAT,
    INT,
    Arr,
    Fn,
    Lines,
    Plain,
    Scalar,
    Tup,
    Untranslatable,
    Value,
    constant,
    from_python,
    kind_of_both,
    leaves,
    rebuilt,
    wrapped,
)

V = TypeVar("V", bound=Value)
OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
OF_INTEGERS = {ast.BitOr: "|", ast.BitAnd: "&", ast.LShift: "<<", ast.RShift: ">>", ast.Mod: "%"}
CONSTANT_FOLDING: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
KNOWN_COMPARISONS: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}

Outside = Callable[[object, str], Value]
"""Gives the value of a Python object from outside a function, by its name."""
Call = Callable[["Expressions", object, list[Value]], Value]
"""Emits a call of a function, and gives its result."""


class Expressions(Arrays):
    """The part of a translator that computes values; what a value needs beforehand is emitted as statements."""

    def __init__(self, outside: Outside, call: Call) -> None:
        """Compute values; ``outside`` gives objects from outside a function, ``call`` emits a call of one."""
        super().__init__()
        self.outside, self.emit_call = outside, call
        self.env: dict[str, Value] = {}

    def lookup(self, name: str) -> Value:
        """Return the value of a name; raises Untranslatable for an unknown one."""
        raise NotImplementedError

    def value(self, node: ast.expr) -> Value:
        """Return the value of an expression. Raises Untranslatable."""
        match node:
            case ast.Constant():
                return from_python(node.value, "constant")
            case ast.Name():
                return self.lookup(node.id)
            case ast.BinOp():
                return self.operated(node.op, *self.several([node.left, node.right]))
            case ast.UnaryOp():
                return self._unary(node.op, self.value(node.operand))
            case ast.BoolOp():
                return self._logical(isinstance(node.op, ast.And), node.values)
            case ast.Compare():
                return self._compared(node)
            case ast.IfExp():
                return self._either(node)
            case ast.Tuple() | ast.List():
                return Tup(tuple(self.several(node.elts)))
            case ast.Subscript():
                return self.part(self.value(node.value), node.slice)
            case ast.Attribute():
                return self._attribute(self.value(node.value), node.attr)
            case ast.Call():
                return self._call(node)
            case ast.ListComp() | ast.GeneratorExp():
                return Tup(tuple(self._comprehended(node.elt, node.generators)))
            case _:
                raise Untranslatable(f"{type(node).__name__} is not among the expressions of a kernel")

    def number(self, node: ast.expr) -> Scalar:
        """Return the value of an expression that is a number. Raises Untranslatable."""
        value = self.value(node)
        if not isinstance(value, Scalar):
            raise Untranslatable(f"{ast.unparse(node)} is not a number")
        return value

    def several(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """Return the values of expressions, evaluated from left to right.

        An element of an array is read before a later expression may change it.
        """
        values: list[Value] = []
        for node in nodes:
            before = len(self.lines)
            starred = isinstance(node, ast.Starred)
            value = self.value(node.value if isinstance(node, ast.Starred) else node)
            if len(self.lines) > before:
                emitted = self.lines[before:]
                del self.lines[before:]
                values = [self.read(entry) for entry in values]
                self.lines += emitted
            values += self.items_of(value) if starred else [value]
        return values

    def read(self, value: Value) -> Value:
        """Return ``value`` with the elements of arrays in variables."""
        parts = [self.variable(p, "read") if isinstance(p, Scalar) and "[" in p.c else p for p in leaves(value)]
        return rebuilt(value, parts)

    def stable(self, value: V) -> V:
        """Return ``value`` with each number in a variable, a name or a literal."""
        parts = [self.variable(p, "t") if isinstance(p, Scalar) and not p.simple else p for p in leaves(value)]
        return cast(V, rebuilt(value, parts))

    # -- operators ----------------------------------------------------------------------------------------

    def operated(self, op: ast.operator, left: Value, right: Value) -> Value:
        """Return the result of a binary operator on numbers, arrays or tuples."""
        if isinstance(left, (Scalar, Arr)) and isinstance(right, (Scalar, Arr)):
            if isinstance(left, Arr) or isinstance(right, Arr):
                if isinstance(op, tuple(OPERATORS)):
                    return self.elementwise(lambda a, b: self._arithmetic(op, a, b), left, right)
            else:
                return self._arithmetic(op, left, right)
        if isinstance(op, ast.Add) and isinstance(left, (Tup, Arr)) and isinstance(right, (Tup, Arr)):
            return Tup((*self.items_of(left), *self.items_of(right)))
        if (
            isinstance(op, ast.Mult)
            and isinstance(left, Tup)
            and isinstance(right, Scalar)
            and right.const is not None
        ):
            return self.filled(left.items, int(right.const))
        raise Untranslatable(f"the operator {type(op).__name__} has no such operands in a kernel")

    def _arithmetic(self, op: ast.operator, left: Scalar, right: Scalar) -> Scalar:
        integral = left.kind != FLOAT and right.kind != FLOAT
        if integral and left.const is not None and right.const is not None and not isinstance(op, ast.Div):
            return constant(CONSTANT_FOLDING[type(op)](int(left.const), int(right.const)))
        if isinstance(op, ast.Div) and integral:
            return Scalar(FLOAT, f"(double){wrapped(left.c)} / (double){wrapped(right.c)}")
        if type(op) in OPERATORS:
            c = f"{wrapped(left.c)} {OPERATORS[type(op)]} {wrapped(right.c)}"
            return Scalar(INT if integral else FLOAT, c)
        if type(op) in OF_INTEGERS and integral:
            return Scalar(INT, f"{wrapped(left.c)} {OF_INTEGERS[type(op)]} {wrapped(right.c)}")
        raise Untranslatable(f"the operator {type(op).__name__} is not among the operators of kernels")

    def _unary(self, op: ast.unaryop, value: Value) -> Value:
        if isinstance(op, ast.Not):
            test = self.truth(value)
            return constant(not test.const) if test.const is not None else Scalar(BOOL, f"!{wrapped(test.c)}")
        if isinstance(value, Arr) and isinstance(op, ast.USub):
            return self.elementwise(lambda a, _: self._unary_number(op, a), value, constant(0.0))
        if not isinstance(value, Scalar):
            raise Untranslatable("the operand of a sign is not a number")
        return self._unary_number(op, value)

    def _unary_number(self, op: ast.unaryop, value: Scalar) -> Scalar:
        if isinstance(op, ast.UAdd):
            return value
        if not isinstance(op, ast.USub):
            raise Untranslatable(f"the operator {type(op).__name__} is not among the operators of kernels")
        if value.const is not None:
            return constant(-value.const)
        return Scalar(FLOAT if value.kind == FLOAT else INT, f"-{wrapped(value.c)}")

    def truth(self, value: Value) -> Scalar:
        """Return whether a value counts as true, as Python has it."""
        if isinstance(value, Scalar):
            if value.const is not None:
                return constant(bool(value.const))
            return value if value.kind == BOOL else Scalar(BOOL, f"{wrapped(value.c)} != 0")
        if isinstance(value, Tup):
            return constant(len(value.items) > 0)
        if isinstance(value, Plain):
            return constant(bool(value.value))
        raise Untranslatable("the truth of an array is not defined")

    def _logical(self, both: bool, nodes: Sequence[ast.expr]) -> Scalar:
        first = self.truth(self.value(nodes[0]))
        if len(nodes) == 1:
            return first
        if first.const is not None:
            return self._logical(both, nodes[1:]) if bool(first.const) is both else constant(not both)
        with self.buffered() as lines:
            rest = self._logical(both, nodes[1:])
        if not lines:
            if rest.const is not None:
                return first if bool(rest.const) is both else self._short(first, rest, both)
            return self._short(first, rest, both)
        result = self.declare(BOOL, "holds")
        self.emit(f"{result.c} = {first.c};")
        lines.append(f"{INDENT * (self.indent + 1)}{result.c} = {rest.c};")
        self.emit(f"if ({result.c if both else '!' + result.c}) {{")
        self.lines += lines
        self.emit("}")
        return result

    @staticmethod
    def _short(first: Scalar, rest: Scalar, both: bool) -> Scalar:
        return Scalar(BOOL, f"{wrapped(first.c)} {'&&' if both else '||'} {wrapped(rest.c)}")

    def _compared(self, node: ast.Compare) -> Scalar:
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            left, right = (self.value(entry) for entry in (node.left, node.comparators[0]))
            same = isinstance(left, Plain) and isinstance(right, Plain) and left.value is right.value
            return constant(same is isinstance(node.ops[0], ast.Is))
        values = [
            self.stable(entry) if at else entry
            for at, entry in enumerate(self.several([node.left, *node.comparators[:-1]]))
        ]
        values.append(self.value(node.comparators[-1]))
        tests = []
        for op, left, right in zip(node.ops, values[:-1], values[1:], strict=True):
            if not isinstance(left, Scalar) or not isinstance(right, Scalar) or type(op) not in COMPARISONS:
                raise Untranslatable(f"{ast.unparse(node)}: only numbers are compared in a kernel")
            if left.const is not None and right.const is not None:
                test = constant(KNOWN_COMPARISONS[type(op)](left.const, right.const))
            else:
                test = Scalar(BOOL, f"{wrapped(left.c)} {COMPARISONS[type(op)]} {wrapped(right.c)}")
            tests.append(test)
        open_tests = [test for test in tests if test.const is None]
        if any(test.const is False for test in tests):
            return constant(False)
        if not open_tests:
            return constant(True)
        return Scalar(BOOL, " && ".join(wrapped(test.c) if len(open_tests) > 1 else test.c for test in open_tests))

    def _either(self, node: ast.IfExp) -> Value:
        test = self.truth(self.value(node.test))
        if test.const is not None:
            return self.value(node.body if test.const else node.orelse)
        with self.buffered() as body:
            one = self.value(node.body)
        with self.buffered() as other_body:
            other = self.value(node.orelse)
        if not body and not other_body and isinstance(one, Scalar) and isinstance(other, Scalar):
            return Scalar(kind_of_both(one, other), f"{wrapped(test.c)} ? {wrapped(one.c)} : {wrapped(other.c)}")
        met = self.meet(one, other, "either", body, other_body)
        self.branch(test.c, body, other_body)
        return met

    # -- parts and calls ----------------------------------------------------------------------------------

    def _attribute(self, value: Value, name: str) -> Value:
        if isinstance(value, Tup) and name in value.names:
            return value.items[value.names.index(name)]
        if isinstance(value, Arr):
            return attribute_of(value, name)
        if isinstance(value, Plain) and hasattr(value.value, name):
            return self.outside(getattr(value.value, name), name)
        raise Untranslatable(f".{name} is not among the attributes that a kernel uses")

    def _call(self, node: ast.Call) -> Value:
        if any(entry.arg != "strict" for entry in node.keywords):
            raise Untranslatable("a kernel calls functions with positional arguments only")
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            if isinstance(owner, Arr):
                return self.method(owner, node.func.attr, self.several(node.args))
            function = self._attribute(owner, node.func.attr)
        else:
            function = self.value(node.func)
        arguments = self.several(node.args)
        if isinstance(function, Plain) and isinstance(function.value, type) and hasattr(function.value, "_fields"):
            return Tup(tuple(arguments), function.value._fields)
        if not isinstance(function, Fn):
            raise Untranslatable(f"{ast.unparse(node.func)} is not a function")
        return self.emit_call(self, function.function, arguments)

    def _comprehended(self, element: ast.expr, generators: list[ast.comprehension]) -> Iterator[Value]:
        """Yield the values of a comprehension over tuples, whose items are written out."""
        if not generators:
            yield self.stable(self.value(element))
            return
        first, *rest = generators
        if first.ifs:
            raise Untranslatable("a comprehension of a kernel has no condition")
        for item in self.items_of(self.value(first.iter)):
            outer = dict(self.env)
            self.assign(first.target, item)
            yield from self._comprehended(element, rest)
            self.env = outer

    def assign(self, target: ast.expr, value: Value) -> None:
        """Bind a name, unpack a tuple, or store into an array."""
        raise NotImplementedError

    def meet(self, one: Value, other: Value, name: str, body: Lines, other_body: Lines) -> Value:
        """Return one value for the two ends of branches."""
        raise NotImplementedError

    def branch(self, test: str, body: Lines, other_body: Lines) -> None:
        """Emit an if statement with the lines of its branches."""
        raise NotImplementedError
