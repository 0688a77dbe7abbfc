# SPDX-License-Identifier: Apache-2.0
"""Translate the syntax tree of a kernel: expressions, assignments, branches, loops and returns.

Every assignment creates a new C variable, so that a bound value never changes. After an if statement, a new
variable holds the value from the executed branch. Each name that a loop changes has a variable, which is assigned
at the end of every pass.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from types import FunctionType

from rths_nodes.codegen.values import (
    BOOL,
    FLOAT,
    INT,
    MISMATCH,
    RETURNED,
    Arr,
    Lines,
    Plain,
    Range,
    Return,
    Scalar,
    Scope,
    Tup,
    Untranslatable,
    Value,
    WrittenOut,
    constant,
    from_python,
    integer_of,
    joined,
    kind_of,
    leaves,
    rebuilt,
    scalar,
    wrapped,
)

Emitter = Callable[..., Value]
"""Function that appends a call to the C source of a caller: ``emit(caller, function, arguments, target) ->
result``."""
OPERATORS: dict[type[ast.operator], tuple[str, Callable[[int, int], int] | None]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", None),
    ast.Mod: ("%", operator.mod),
    ast.BitOr: ("|", operator.or_),
    ast.BitAnd: ("&", operator.and_),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
}
PLAIN = {"+": (" */+-", " */"), "-": (" */+-", " */"), "*": (" */", ""), "/": (" */", "")}
"""For each operator, the operators that its left and right operands may contain without parentheses."""
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
HANDED_ON = "handed_on__"
TRANSLATED = ("env", "arrays", "taken", "sources", "written", "copied", "counting", "indent", "loops")
"""Attributes of a translator that change with every translated line, in addition to ``lines``."""


class Expressions(Scope):
    """Translates expressions to values, and emits the C statements that must precede each expression.

    ``names`` are the global and closure variables of the function. ``env`` maps local names to values.
    """

    def __init__(self, emit_call: Emitter, names: Mapping[str, object]) -> None:
        super().__init__()
        self.emit_call, self.names = emit_call, names
        self.env: dict[str, Value] = {}
        self.targets: dict[ast.expr, ast.expr] = {}

    def lookup(self, name: str) -> Value:
        if name in self.env:
            if self.env[name] is MISMATCH:
                raise Untranslatable(
                    f"{name} has two forms, but a name must keep its type and shape within a function"
                )
            return self.env[name]
        if name in self.names:
            return from_python(self.names[name], name)
        if name in vars(builtins):
            return Plain(vars(builtins)[name])
        raise Untranslatable(f"NameError: {name} is not defined, or is defined only within a branch or loop")

    def value(self, node: ast.expr) -> Value:
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
                owner = self.value(node.value)
                part = self.part(owner, node.slice)
                if isinstance(owner, Arr) and owner.listed and isinstance(part, Arr):
                    return replace(self.copy(part), listed=True)
                return part
            case ast.Attribute():
                return self._attribute(self.value(node.value), node.attr)
            case ast.Call():
                return self._call(node)
            case ast.ListComp() | ast.GeneratorExp():
                return Tup(tuple(self._comprehended(node.elt, node.generators)))
            case _:
                raise Untranslatable(f"a kernel cannot contain the expression {type(node).__name__}")

    def several(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """Return the values of expressions. Array elements are read before a later expression can change them."""
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

    def operated(self, op: ast.operator, left: Value, right: Value) -> Value:
        match left, right:
            case Scalar(), Scalar():
                return self._arithmetic(op, left, right)
            case (Tup() | Arr(listed=True), Tup() | Arr(listed=True)) if isinstance(op, ast.Add):
                return Tup((*self.items_of(left), *self.items_of(right)))
            case (Scalar() | Arr(listed=False), Scalar() | Arr(listed=False)) if isinstance(op, OF_FLOATS):
                return self.elementwise(partial(self._arithmetic, op), left, right)
            case Tup(items=(Scalar() as number,)), Scalar() if isinstance(op, ast.Mult):
                array = self.fresh(number.kind, (integer_of(right, "the length of a list"),))
                self.store(array, number)
                return replace(array, listed=True)  # [0.0] * n becomes a writable array
        raise Untranslatable(f"the operator {type(op).__name__} cannot have these operands in a kernel")

    def _arithmetic(self, op: ast.operator, left: Scalar, right: Scalar) -> Scalar:
        integral = FLOAT not in (left.kind, right.kind)
        sign, fold = OPERATORS.get(type(op), ("", None))
        if integral and fold and left.const is not None and right.const is not None:
            return constant(fold(int(left.const), int(right.const)))
        if not sign or not (integral or isinstance(op, OF_FLOATS)):
            raise Untranslatable(f"a kernel cannot contain the operator {type(op).__name__}")
        if integral and isinstance(op, ast.Div):
            return Scalar(FLOAT, f"(double){wrapped(left.c)} / (double){wrapped(right.c)}")
        if isinstance(op, ast.Mod) and not self.never_negative(left.c + right.c):
            number, divisor = wrapped(left.c), wrapped(right.c)
            # in Python, the remainder has the sign of the divisor
            return Scalar(INT, f"({number} % {divisor} + {divisor}) % {divisor}")
        first, second = PLAIN.get(sign, ("", ""))
        return Scalar(INT if integral else FLOAT, f"{wrapped(left.c, first)} {sign} {wrapped(right.c, second)}")

    def _unary(self, op: ast.unaryop, value: Value) -> Value:
        if isinstance(op, ast.Not):
            test = self.truth(value)
            return constant(not test.const) if test.const is not None else Scalar(BOOL, f"!{wrapped(test.c)}")
        if not isinstance(op, ast.USub):
            raise Untranslatable(f"a kernel cannot contain the operator {type(op).__name__}")
        if isinstance(value, Arr) and not value.listed:
            return self.elementwise(lambda number: Scalar(number.kind, f"-{wrapped(number.c)}"), value)
        number = scalar(value, "the operand of a sign must be a number")
        if number.const is not None:
            return constant(-number.const)
        return Scalar(FLOAT if number.kind == FLOAT else INT, f"-{wrapped(number.c)}")

    def truth(self, value: Value) -> Scalar:
        if isinstance(value, Scalar):
            if value.const is not None:
                return constant(bool(value.const))
            return value if value.kind == BOOL else Scalar(BOOL, f"{wrapped(value.c)} != 0")
        if isinstance(value, (Tup, Plain)):
            return constant(bool(value.items if isinstance(value, Tup) else value.value))
        raise Untranslatable("the truth value of an array is not defined")

    def _logical(self, both: bool, nodes: Sequence[ast.expr]) -> Value:
        first, *rest = nodes
        value = self.value(first)
        if not rest:
            return value
        test = self.truth(value)
        if test.const is not None:
            return self._logical(both, rest) if test.const is both else value
        decided = constant(not both)
        if test is not value:
            decided = self.stable(scalar(value))
            test = self.truth(decided)
        with self.buffered() as lines:
            other = self._logical(both, rest)
        ends = [(other, lines), (decided, [])]
        return self._chosen(test.c, *(ends if both else ends[::-1]))

    def _compared(self, node: ast.Compare) -> Value:
        operands = [node.left, *node.comparators]
        if len(node.ops) > 1:
            if any(map(self._calls_kernel, operands[1:-1])):
                raise Untranslatable(f"{ast.unparse(node)}: assign a call between two comparisons to a name first")
            pairs = zip(operands, node.ops, node.comparators, strict=False)
            return self._logical(True, [ast.Compare(left, [op], [right]) for left, op, right in pairs])
        left, right = self.several(operands)
        op = node.ops[0]
        if isinstance(op, (ast.Is, ast.IsNot)):
            return constant((left == right) is isinstance(op, ast.Is))
        if not isinstance(left, Scalar) or not isinstance(right, Scalar) or type(op) not in COMPARISONS:
            raise Untranslatable(f"{ast.unparse(node)}: a kernel can compare only numbers")
        sign, compare = COMPARISONS[type(op)]
        if left.const is not None and right.const is not None:
            return constant(compare(left.const, right.const))
        return Scalar(BOOL, f"{wrapped(left.c, ' */+-')} {sign} {wrapped(right.c, ' */+-')}")

    def _calls_kernel(self, node: ast.expr) -> bool:
        calls = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
        made = [self.value(function) if isinstance(function, ast.Name) else None for function in calls]
        return any(not isinstance(one, Plain) or isinstance(one.value, FunctionType) for one in made)

    def _either(self, condition: ast.expr, positive: ast.expr, negative: ast.expr) -> Value:
        test = self.truth(self.value(condition))
        if test.const is not None:
            return self.value(positive if test.const else negative)
        with self.buffered() as body:
            one = self.value(positive)
        with self.buffered() as other_body:
            other = self.value(negative)
        return self._chosen(test.c, (one, body), (other, other_body))

    def _chosen(self, test: str, positive: tuple[Value, Lines], negative: tuple[Value, Lines]) -> Value:
        (one, body), (other, other_body) = positive, negative
        if not body and not other_body and isinstance(one, Scalar) and isinstance(other, Scalar):
            kind = kind_of([one, other])
            if kind == BOOL and (other.const is False or one.const is True):
                sign, second = ("&&", one) if other.const is False else ("||", other)
                return Scalar(BOOL, f"{wrapped(test, COMPARING)} {sign} {wrapped(second.c, COMPARING)}")
            return Scalar(kind, f"{wrapped(test)} ? {wrapped(one.c)} : {wrapped(other.c)}")
        met = self.meet("either", [positive, negative])
        self.branch(test, body, other_body)
        return met

    def part(self, value: Value, index: ast.expr) -> Value:
        if isinstance(value, Tup):
            return self._item(value, index)
        if not isinstance(value, Arr):
            raise Untranslatable("a kernel can use subscripts only for tuples and arrays")
        indices = index.elts if isinstance(index, ast.Tuple) else [index]
        shape: list[int | None] = []
        strides: list[int] = []
        for position, length, stride in zip(indices, value.shape, value.strides, strict=False):
            if isinstance(position, ast.Slice):
                first, end = self._bounds(position, length)
                value = value.moved(str(first), stride)
                shape.append(end - first)
                strides.append(stride)
            else:
                value = value.moved(self.position_of(self._index(position), length), stride)
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
            raise Untranslatable(
                f"the index {position.const} is out of range for a tuple of length {len(value.items)}"
            )
        return value.items[int(position.const)]

    def _index(self, node: ast.expr) -> Scalar:
        position = scalar(self.value(node), f"{ast.unparse(node)} is not a number")
        if position.kind == FLOAT:
            raise Untranslatable("an index must not be a float")
        return position

    def _bounds(self, node: ast.Slice, length: int | None) -> tuple[int, int]:
        if node.step is not None:
            raise Untranslatable("a slice in a kernel cannot have a step")
        if length is None:
            raise Untranslatable("a slice requires an array of known length")
        bounds = [
            bound and integer_of(self.value(bound), "the bound of a slice") for bound in (node.lower, node.upper)
        ]
        first, end, _ = slice(*bounds).indices(length)
        return first, max(first, end)

    def _attribute(self, value: Value, name: str) -> Value:
        if isinstance(value, Tup) and name in value.names:
            return value.items[value.names.index(name)]
        if isinstance(value, Plain) and hasattr(value.value, name):
            return from_python(getattr(value.value, name), name)
        if isinstance(value, Arr) and name == "T":
            return replace(value, shape=value.shape[::-1], strides=value.strides[::-1])
        raise Untranslatable(f"a kernel cannot use the attribute .{name}")

    def _method(self, array: Arr, name: str, arguments: list[Value]) -> Value:
        if name in ("copy", "tolist"):
            return replace(self.copy(array), listed=array.listed or name == "tolist")
        if name == "reshape":
            shape = tuple(integer_of(length, "a length") for length in arguments)
            stored = array if array.contiguous else self.copy(array)
            if -1 not in shape:
                return replace(stored, shape=shape, strides=())
        raise Untranslatable(f"a kernel cannot call the array method .{name}()")

    def _call(self, node: ast.Call) -> Value:
        if any(keyword.arg != "strict" for keyword in node.keywords):
            raise Untranslatable("a kernel can call functions only with positional arguments")
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
        return self.emit_call(self, function.value, arguments, self.targets.get(node))

    def _comprehended(self, element: ast.expr, generators: list[ast.comprehension]) -> Iterator[Value]:
        if not generators:
            yield self.stable(self.value(element))
            return
        first, *rest = generators
        if first.ifs:
            raise Untranslatable("a comprehension in a kernel cannot have a condition")
        for item in self.items_of(self.value(first.iter)):
            outer = dict(self.env)
            self.assign(first.target, item)
            yield from self._comprehended(element, rest)
            self.env = outer

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = self.stable(value, target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = self.items_of(value)
            if len(items) != len(target.elts):
                raise Untranslatable(f"{len(items)} values cannot be assigned to {len(target.elts)} names")
            names = [inner.id if isinstance(inner, ast.Name) else "t" for inner in target.elts]
            for inner, item in zip(target.elts, list(map(self.stable, items, names)), strict=True):
                self.assign(inner, item)
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value)
            if not isinstance(owner, Arr):
                raise Untranslatable("a kernel can assign only to elements and parts of arrays")
            part = self.part(owner, target.slice)
            if isinstance(part, Scalar):
                self.written |= self.memory_of(owner)
            self.store(part, value)
        else:
            raise Untranslatable(f"cannot assign to {ast.unparse(target)}")


class FunctionTranslator(Expressions):
    def __init__(self, emit_call: Emitter, function: FunctionType, arguments: Sequence[Value]) -> None:
        self.function, self.tree = function, tree_of(function)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        outside = function.__globals__ | {name: cell.cell_contents for name, cell in cells}
        local = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
        super().__init__(emit_call, {name: value for name, value in outside.items() if name not in local})
        self.loops: list[Callable[[], None] | None] = []
        """For each enclosing loop, the function that emits the end of a pass; None for an unrolled loop."""
        self.arguments = arguments
        self.held = {part.base for argument in arguments for part in leaves(argument) if isinstance(part, Arr)}
        self.last_reads: dict[str, int] = {}
        for name in names_in([self.tree]):
            if isinstance(name.ctx, ast.Load):
                self.last_reads[name.id] = max(name.lineno, self.last_reads.get(name.id, 0))
        names = [argument.arg for argument in self.tree.args.args]
        if self.tree.args.vararg or self.tree.args.kwarg:
            with self._located(self.tree):
                raise Untranslatable(
                    f"{function.__qualname__}: {self.tree.name} must not take arguments by * or **"
                )
        if len(names) != len(arguments):
            raise Untranslatable(f"{function.__qualname__}: takes {len(names)} arguments, not {len(arguments)}")
        self.env = dict(zip(names, arguments, strict=True))

    def translate(self) -> Value:
        if not self.block(self.tree.body):
            self.lines.append(Return(self.tree, Plain(None), self.indent))
        returns = [line for line in self.lines if isinstance(line, Return)]
        result = joined([line.value for line in returns], RETURNED)
        for line in returns:
            with self._located(line.statement):
                if result is MISMATCH:
                    raise Untranslatable("two return statements return values of different type or shape")
                self._refuse_moved(line.value)
        with self._located(self.tree):
            if any(memory and self.written & {copy, *memory} for copy, memory in self.copied):
                raise Untranslatable("a loop or a call gives a modified array a second name. Copy the array")
        return result

    def block(self, statements: Sequence[ast.stmt]) -> bool:
        for statement in statements:
            with self._located(statement):
                if self._statement(statement):
                    return True
        return False

    @contextmanager
    def _located(self, statement: ast.stmt) -> Iterator[None]:
        try:
            yield
        except Untranslatable as error:
            line = self.function.__code__.co_firstlineno + statement.lineno - 1
            error.location = error.location or f"{self.function.__code__.co_filename}:{line}: "
            raise

    def _statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert() | ast.AnnAssign(value=None):
                pass
            case ast.Expr():
                self.value(node.value)
            case ast.Assign():
                self.targets[node.value] = node.targets[0]
                value = self.value(node.value)
                for target in node.targets:
                    self.assign(target, value)
            case ast.AnnAssign(value=ast.expr() as annotated):
                self.assign(node.target, self.value(annotated))
            case ast.AugAssign():
                old, more = self.several([node.target, node.value])
                result = self.operated(node.op, old, more)
                if isinstance(old, Arr):
                    self.store(old, result)
                else:
                    self.assign(node.target, result)
            case ast.If():
                return self._if(node)
            case ast.While(orelse=[_, *_]) | ast.For(orelse=[_, *_]):
                raise Untranslatable("a loop in a kernel cannot have an else branch")
            case ast.While():
                self._while_loop(node)
            case ast.For():
                self._for_loop(node)
            case ast.Return():
                value = Plain(None) if node.value is None else self.value(node.value)
                self.lines.append(Return(node, value, self.indent))
                return True
            case ast.Break() | ast.Continue():
                self._leave_pass("break;" if isinstance(node, ast.Break) else "continue;")
                return True
            case _:
                raise Untranslatable(f"a kernel cannot contain the statement {type(node).__name__}")
        return False

    def _if(self, node: ast.If) -> bool:
        test = self.truth(self.value(node.test))
        if test.const is not None:
            return self.block(node.body if test.const else node.orelse)
        before = self.env
        bodies: list[Lines] = []
        ends: list[tuple[dict[str, Value], Lines]] = []
        for statements in (node.body, node.orelse):
            self.env = dict(before)
            with self.buffered() as lines:
                if not self.block(statements):
                    ends.append((self.env, lines))
            bodies.append(lines)
        self.env = {}
        for name in dict.fromkeys(name for env, _ in ends for name in env):
            values = [(env[name], lines) for env, lines in ends if name in env]
            first = values[0][0]
            if all(value == first for value, _ in values) and (len(values) > 1 or first == before.get(name)):
                self.env[name] = first
            elif len(values) > 1 or name in before or self.last_reads.get(name, 0) > (node.end_lineno or 0):
                self.env[name] = self.meet(name, values)
        self.branch(test.c, *bodies)
        return not ends

    def _refuse_moved(self, result: Value) -> None:
        """Raise Untranslatable if a step moves an array within its state and writes to the old or new array.

        In C, each array of the state has its own memory.
        """
        if len(self.arguments) < 2 or not isinstance(result, Tup) or len(result.items) != 2:
            return
        state, new = self.arguments[1], result.items[0]
        if not isinstance(state, Tup) or not isinstance(new, Tup) or len(leaves(state)) != len(leaves(new)):
            return
        pairs = zip(leaves(state), leaves(new), strict=True)
        arrays = [(old, now) for old, now in pairs if isinstance(old, Arr) and isinstance(now, Arr)]
        for position, (old, now) in enumerate(arrays):
            memory = self.memory_of(now)
            moved = memory & self.held if now != old else set()
            moved = moved.union(*(memory & self.memory_of(part) for _, part in arrays[:position]))
            if moved and self.written & (moved | {old.base}):
                raise Untranslatable("an array of the new state is also used elsewhere. Copy the array")

    def _while_loop(self, node: ast.While) -> None:
        def begin() -> None:
            test = self.truth(self.value(node.test))
            if test.const is not True:
                with self.nested(f"if (!({test.c})) {{"):
                    self._leave_pass("break;")

        self._loop(node, "for (;;)", begin)

    def _for_loop(self, node: ast.For) -> None:
        """Translate a loop over a range to a C loop. Unroll other loops, and any loop that needs a known index."""
        over = self.value(node.iter)
        if isinstance(over, Range):
            undo = self._undo()
            index = Scalar(INT, self.name_for(node.target.id if isinstance(node.target, ast.Name) else "index"))
            begin, end = self.stable(over.begin), self.stable(over.end)
            if begin.const is not None and begin.const >= 0:
                self.counting.add(index.c)
            head = f"for (int64_t {index.c} = {begin.c}; {index.c} < {end.c}; ++{index.c})"
            try:
                self._loop(node, head, partial(self.assign, node.target, index))
                return
            except WrittenOut:
                if None in (begin.const, end.const):
                    raise
                undo()
        items = self.items_of(over)  # each pass reads one element of an array
        self.loops.append(None)
        for item in items if isinstance(over, Arr) else map(self.stable, items):
            self.assign(node.target, item)
            self.block(node.body)
        self.loops.pop()

    def _undo(self) -> Callable[[], None]:
        saved, lines = {name: copy(getattr(self, name)) for name in TRANSLATED}, len(self.lines)

        def undo() -> None:
            vars(self).update(saved)
            del self.lines[lines:]

        return undo

    def _loop(self, node: ast.For | ast.While, head: str, begin: Callable[[], None]) -> None:
        carried = self._carried(node, begin)
        env = dict(self.env)  # names bound in the loop are local to the C block
        with self.nested(f"{head} {{"):
            self._pass(node, begin, partial(self._hand_on, carried, env))
        self.env = env
        if isinstance(node, ast.For):  # the C index is one too large after the loop
            for name in names_in([node.target]):
                self.env.pop(name.id, None)

    def _pass(self, node: ast.For | ast.While, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self.loops.append(end)
        begin()
        if not self.block(node.body):
            end()
        self.loops.pop()

    def _leave_pass(self, statement: str) -> None:
        if not (end := self.loops[-1]):
            raise Untranslatable("break and continue are allowed only in while loops and loops over a range")
        end()
        self.emit(statement)

    def _carried(self, node: ast.For | ast.While, begin: Callable[[], None]) -> dict[str, Value]:
        """Declare variables for the names that a loop changes, and bind the names to these variables.

        The loop is translated on trial until no further name changes.
        """
        stored = {name.id for name in names_in(node.body) if isinstance(name.ctx, ast.Store)}
        firsts = {name: self.env[name] for name in sorted(stored & self.env.keys())}
        plan: dict[str, Value] = {}
        new, ends = firsts, list[dict[str, Value]]()
        while new != plan:
            plan, undo = new, self._undo()
            ends.clear()
            self.env |= plan
            self._pass(node, begin, lambda: ends.append(dict(self.env)))
            undo()
            values = {name: [plan[name], *(env[name] for env in ends if name in env)] for name in plan}
            new = {name: joined(values[name], f"{HANDED_ON}{name}_") for name in plan}
        carried = {name: self._declared(plan[name], firsts[name], name) for name in plan}
        self.env |= carried
        return carried

    def _declared(self, planned: Value, first: Value, name: str) -> Value:
        parts = leaves(planned)
        for position, (part, begin) in enumerate(zip(parts, leaves(first), strict=False)):
            if isinstance(part, Arr) and part.c.startswith(HANDED_ON):
                parts[position] = array = self.fresh(part.kind, part.shape, name)
                self._put(array, begin)
            elif isinstance(part, Scalar) and part.c.startswith(HANDED_ON):
                parts[position] = self.variable(replace(part, c=scalar(begin).c), name)
        declared = rebuilt(planned, parts)
        self._note_copies(name, declared, first, self.env)
        return declared

    def _hand_on(self, carried: dict[str, Value], before: dict[str, Value]) -> None:
        pairs: list[tuple[Scalar | Arr, Value]] = []
        for name, variables in carried.items():
            if name in self.env and not isinstance(variables, Plain):
                values = zip(leaves(variables), leaves(self.env[name]), strict=True)
                pairs += [(one, value) for one, value in values if isinstance(one, (Scalar, Arr)) and one != value]
                self._note_copies(name, variables, self.env[name], before)
        changed = {variable.c for variable, _ in pairs}
        for at, (variable, value) in enumerate(pairs):
            overwritten = changed - {variable.c}
            if isinstance(value, Arr) and overwritten & self.memory_of(value):
                pairs[at] = variable, self.copy(value)
            elif isinstance(value, Scalar) and overwritten.intersection(re.findall(r"\w+", value.c)):
                pairs[at] = variable, self.variable(value, "next")
        for variable, value in pairs:
            self._put(variable, value, shifted=not (isinstance(value, Arr) and value.contiguous))

    def _put(self, variable: Scalar | Arr, value: Value, shifted: bool = True) -> None:
        written = set(self.written)
        self.store(variable, value, shifted)
        self.written = written  # in Python, this assignment does not change an array

    def _note_copies(self, name: str, variables: Value, value: Value, names: Iterable[str]) -> None:
        """Record arrays that are copied to variables of ``name`` in C, but shared with another name in Python."""
        pairs = zip(leaves(variables), leaves(value), strict=True)
        copies = [(one, two) for one, two in pairs if isinstance(one, Arr) and isinstance(two, Arr) and one != two]
        if not copies:  # most loops pass on numbers only
            return
        bound = [part for other in names if other != name for part in leaves(self.env.get(other, MISMATCH))]
        bases = {part.base for part in bound if isinstance(part, Arr)}
        for variable, part in copies:
            memory = self.memory_of(part)
            self.copied.append((variable.base, memory if part.base in bases else memory & self.held))


def tree_of(function: FunctionType) -> ast.FunctionDef:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function.__code__))).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise Untranslatable(f"{function.__qualname__}: its source is not available ({error})") from error
    if not isinstance(tree, ast.FunctionDef):
        unnamed = Untranslatable(f"{function.__qualname__}: must be a function with a name, not a lambda")
        unnamed.location = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno}: "
        raise unnamed
    return tree


def names_in(nodes: Sequence[ast.AST]) -> Iterator[ast.Name]:
    return (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name))
