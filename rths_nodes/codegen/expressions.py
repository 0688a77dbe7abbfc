# SPDX-License-Identifier: Apache-2.0
"""Translate the expressions of a kernel and its assignments."""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from rths_nodes.codegen.values import (
    BOOL,
    FLOAT,
    INT,
    MISMATCH,
    Arr,
    Plain,
    Scalar,
    Scope,
    Tup,
    Untranslatable,
    Value,
    constant,
    from_python,
    integer_of,
    kind_of,
    position_of,
    scalar,
    wrapped,
)

OPERATORS: dict[type[ast.operator], tuple[str, Callable[[int, int], int] | None]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", None),
    ast.Mod: ("%", operator.mod),
    ast.FloorDiv: ("", operator.floordiv),
    ast.BitOr: ("|", operator.or_),
    ast.BitAnd: ("&", operator.and_),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
}
"""C operator, and the operation on two integers of known value."""
PLAIN = {"+": (" */+-", " */"), "-": (" */+-", " */"), "*": (" */", ""), "/": (" */", "")}
"""Operators in the left and in the right operand that need no parentheses."""
COMPARING = " <>=!*/+-"
OF_FLOATS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[float, float], bool]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}


class Surroundings(Protocol):
    """Functions and objects outside of the function under translation."""

    def outside(self, value: object, name: str) -> Value:
        """Return the value of an object of a kernel's module or closure."""

    def call(
        self, caller: Expressions, function: object, arguments: Sequence[Value], target: ast.expr | None = None
    ) -> Value:
        """Emit a call of a Python or C function into the text of ``caller``, and return its result."""


class Expressions(Scope):
    """Computes values, and emits the statements that they need beforehand.

    ``names`` are of the function's module and closure, ``env`` has the values of its local names.
    """

    def __init__(self, program: Surroundings, names: Mapping[str, object]) -> None:
        super().__init__()
        self.program, self.names = program, names
        self.env: dict[str, Value] = {}
        self.targets: dict[ast.expr, ast.expr] = {}
        """Targets to which expressions are assigned."""

    def lookup(self, name: str) -> Value:
        """Return the value of a name of the function, its closure, its module or Python."""
        if name in self.env:
            if self.env[name] is MISMATCH:
                raise Untranslatable(f"{name} has two forms: one name has one type and shape within a function")
            return self.env[name]
        if name in self.names:
            return self.program.outside(self.names[name], name)
        if name in vars(builtins):
            return Plain(vars(builtins)[name])
        raise Untranslatable(f"{name} is not defined")

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
                return self._either(node.test, node.body, node.orelse)
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

    def several(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """Return the values of expressions, evaluated from left to right.

        An element of an array is read before a later expression may change it.
        """
        values: list[Value] = []
        for node in nodes:
            before = len(self.lines)
            starred = isinstance(node, ast.Starred)
            value = self.value(node.value if isinstance(node, ast.Starred) else node)
            emitted = self.lines[before:]
            if emitted:
                del self.lines[before:]
                values = [self.stable(earlier) for earlier in values]
                self.lines += emitted
            values += self.items_of(value) if starred else [value]
        return values

    # -- operators ----------------------------------------------------------------------------------------

    def operated(self, op: ast.operator, left: Value, right: Value) -> Value:
        """Return the result of a binary operator on numbers, arrays or tuples."""
        match left, right:
            case Scalar(), Scalar():
                return self._arithmetic(op, left, right)
            case (Scalar() | Arr(), Scalar() | Arr()) if isinstance(op, OF_FLOATS):
                return self.elementwise(partial(self._arithmetic, op), left, right)
            case (Tup() | Arr(), Tup() | Arr()) if isinstance(op, ast.Add):
                return Tup((*self.items_of(left), *self.items_of(right)))
            case Tup(items=(Scalar() as number,)), Scalar() if isinstance(op, ast.Mult):
                array = self.fresh(number.kind, (integer_of(right, "the length of a list"),))
                self.store(array, number)
                return array  # of one number, and can be written
        raise Untranslatable(f"the operator {type(op).__name__} has no such operands in a kernel")

    @staticmethod
    def _arithmetic(op: ast.operator, left: Scalar, right: Scalar) -> Scalar:
        integral = FLOAT not in (left.kind, right.kind)
        sign, fold = OPERATORS.get(type(op), ("", None))
        if integral and fold and left.const is not None and right.const is not None:
            return constant(fold(int(left.const), int(right.const)))
        if not sign or not (integral or isinstance(op, OF_FLOATS)):
            raise Untranslatable(f"the operator {type(op).__name__} is not among the operators of kernels")
        if integral and isinstance(op, ast.Div):
            return Scalar(FLOAT, f"(double){wrapped(left.c)} / (double){wrapped(right.c)}")
        first, second = PLAIN.get(sign, ("", ""))
        return Scalar(INT if integral else FLOAT, f"{wrapped(left.c, first)} {sign} {wrapped(right.c, second)}")

    def _unary(self, op: ast.unaryop, value: Value) -> Value:
        if isinstance(op, ast.Not):
            test = self.truth(value)
            return constant(not test.const) if test.const is not None else Scalar(BOOL, f"!{wrapped(test.c)}")
        if not isinstance(op, ast.USub):
            raise Untranslatable(f"the operator {type(op).__name__} is not among the operators of kernels")
        if isinstance(value, Arr):
            return self.elementwise(lambda number, _: Scalar(number.kind, f"-{wrapped(number.c)}"), value, value)
        number = scalar(value, "the operand of a sign is not a number")
        if number.const is not None:
            return constant(-number.const)
        return Scalar(FLOAT if number.kind == FLOAT else INT, f"-{wrapped(number.c)}")

    def truth(self, value: Value) -> Scalar:
        """Return whether a value counts as true, as Python has it."""
        if isinstance(value, Scalar):
            if value.const is not None:
                return constant(bool(value.const))
            return value if value.kind == BOOL else Scalar(BOOL, f"{wrapped(value.c)} != 0")
        if isinstance(value, (Tup, Plain)):
            return constant(bool(value.items if isinstance(value, Tup) else value.value))
        raise Untranslatable("the truth of an array is not defined")

    def _logical(self, both: bool, nodes: Sequence[ast.expr]) -> Scalar:
        """Return ``a and b`` as ``b if a else False``, ``a or b`` as ``True if a else b``."""
        first, *rest = nodes
        if not rest:
            return self.truth(self.value(first))
        more = ast.BoolOp(ast.And() if both else ast.Or(), rest)
        branches = (more, ast.Constant(False)) if both else (ast.Constant(True), more)
        return self.truth(self._either(first, *branches))

    def _compared(self, node: ast.Compare) -> Scalar:
        operands = [node.left, *node.comparators]
        if len(node.ops) > 1:
            pairs = zip(operands, node.ops, node.comparators, strict=False)
            return self._logical(True, [ast.Compare(left, [op], [right]) for left, op, right in pairs])
        left, right = self.several(operands)
        op = node.ops[0]
        if isinstance(op, (ast.Is, ast.IsNot)):
            return constant((left == right) is isinstance(op, ast.Is))
        if not isinstance(left, Scalar) or not isinstance(right, Scalar) or type(op) not in COMPARISONS:
            raise Untranslatable(f"{ast.unparse(node)}: only numbers are compared in a kernel")
        sign, compare = COMPARISONS[type(op)]
        if left.const is not None and right.const is not None:
            return constant(compare(left.const, right.const))
        return Scalar(BOOL, f"{wrapped(left.c, ' */+-')} {sign} {wrapped(right.c, ' */+-')}")

    def _either(self, condition: ast.expr, positive: ast.expr, negative: ast.expr) -> Value:
        test = self.truth(self.value(condition))
        if test.const is not None:
            return self.value(positive if test.const else negative)
        with self.buffered() as body:
            one = self.value(positive)
        with self.buffered() as other_body:
            other = self.value(negative)
        if not body and not other_body and isinstance(one, Scalar) and isinstance(other, Scalar):
            if other.const is False or one.const is True:
                sign, second = ("&&", one) if other.const is False else ("||", other)
                return Scalar(BOOL, f"{wrapped(test.c, COMPARING)} {sign} {wrapped(second.c, COMPARING)}")
            return Scalar(kind_of([one, other]), f"{wrapped(test.c)} ? {wrapped(one.c)} : {wrapped(other.c)}")
        met = self.meet("either", [(one, body), (other, other_body)])
        self.branch(test.c, body, other_body)
        return met

    # -- subscripts ---------------------------------------------------------------------------------------

    def part(self, value: Value, index: ast.expr) -> Value:
        """Return a subscript of a tuple or an array."""
        if isinstance(value, Tup):
            return self._item(value, index)
        if not isinstance(value, Arr):
            raise Untranslatable("only tuples and arrays have subscripts in a kernel")
        indices = index.elts if isinstance(index, ast.Tuple) else [index]
        shape: list[int | None] = []
        strides: list[int] = []
        for position, length, stride in zip(indices, value.shape, value.strides, strict=False):
            if isinstance(position, ast.Slice):
                first, end = self._bounds(position, length)
                value = value.moved(str(first), stride)
                shape.append(None if end is None else max(end - first, 0))
                strides.append(stride)
            else:
                value = value.moved(position_of(self._index(position), length), stride)
        rest = len(indices)
        part = replace(value, shape=(*shape, *value.shape[rest:]), strides=(*strides, *value.strides[rest:]))
        return part if part.shape else Scalar(part.kind, part.at())

    def _item(self, value: Tup, index: ast.expr) -> Value:
        if isinstance(index, ast.Slice):
            first, end = self._bounds(index, len(value.items))
            return Tup(value.items[first:end])
        position = self._index(index)
        if position.const is None:
            return self.item(value, position if position.simple else self.variable(position, "at"))
        if not -len(value.items) <= position.const < len(value.items):
            raise Untranslatable(f"index {position.const} of a tuple of {len(value.items)}")
        return value.items[int(position.const)]

    def _index(self, node: ast.expr) -> Scalar:
        position = scalar(self.value(node), f"{ast.unparse(node)} is not a number")
        if position.kind == FLOAT:
            raise Untranslatable("an index is a float")
        return position

    def _bounds(self, node: ast.Slice, length: int | None) -> tuple[int, int | None]:
        """Return first and last position of a slice, whose bounds must be known."""
        if node.step is not None:
            raise Untranslatable("a slice of a kernel has no step")
        first, end = (
            None if bound is None else integer_of(self.value(bound), "the bound of a slice")
            for bound in (node.lower, node.upper)
        )
        if length is None:
            return first or 0, end
        first, end, _ = slice(first, end).indices(length)
        return first, max(first, end)

    # -- attributes and calls -----------------------------------------------------------------------------

    def _attribute(self, value: Value, name: str) -> Value:
        if isinstance(value, Tup) and name in value.names:
            return value.items[value.names.index(name)]
        if isinstance(value, Plain) and hasattr(value.value, name):
            return self.program.outside(getattr(value.value, name), name)
        if isinstance(value, Arr):
            if name == "T":
                return replace(value, shape=value.shape[::-1], strides=value.strides[::-1])
            if name == "shape":
                return Tup(tuple(constant(length) for length in value.shape if length is not None))
        raise Untranslatable(f".{name} is not among the attributes that a kernel uses")

    def _method(self, array: Arr, name: str, arguments: list[Value]) -> Value:
        if name == "copy":
            return self.copy(array)
        if name == "tolist":
            items = self.items_of(array)
            return Tup(tuple(self._method(item, name, []) if isinstance(item, Arr) else item for item in items))
        if name == "reshape":
            shape = tuple(integer_of(length, "a length") for length in arguments)
            stored = array if array.contiguous else self.copy(array)
            if -1 not in shape:
                return replace(stored, shape=shape, strides=())
        raise Untranslatable(f".{name}() is not among the methods of arrays in a kernel")

    def _call(self, node: ast.Call) -> Value:
        if any(keyword.arg != "strict" for keyword in node.keywords):
            raise Untranslatable("a kernel calls functions with positional arguments only")
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            if isinstance(owner, Arr):
                return self._method(owner, node.func.attr, self.several(node.args))
            function = self._attribute(owner, node.func.attr)
        else:
            function = self.value(node.func)
        arguments = self.several(node.args)
        if not isinstance(function, Plain):
            raise Untranslatable(f"{ast.unparse(node.func)} is not a function")
        if isinstance(function.value, type) and hasattr(function.value, "_fields"):
            return Tup(tuple(arguments), function.value._fields)
        return self.program.call(self, function.value, arguments, self.targets.get(node))

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

    # -- assignments --------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Value) -> None:
        """Bind a name, unpack a tuple, or store into an array."""
        if isinstance(target, ast.Name):
            self.env[target.id] = self.stable(value, target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = self.items_of(value)
            if len(items) != len(target.elts):
                raise Untranslatable(f"{len(items)} values for {len(target.elts)} names")
            names = [inner.id if isinstance(inner, ast.Name) else "t" for inner in target.elts]
            for inner, item in zip(target.elts, map(self.stable, items, names), strict=True):
                self.assign(inner, item)
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value)
            part = self.part(owner, target.slice)
            if isinstance(owner, Arr) and isinstance(part, Scalar):
                self.written |= self.memory_of(owner)
            self.store(part, value)
        else:
            raise Untranslatable(f"cannot assign to {ast.unparse(target)}")

    def augment(self, node: ast.AugAssign) -> None:
        """Translate an assignment with an operator."""
        old, more = self.several([node.target, node.value])
        result = self.operated(node.op, old, more)
        if isinstance(old, Arr):
            self.store(old, result)
        else:
            self.assign(node.target, result)
