# SPDX-License-Identifier: Apache-2.0
"""Translate the statements of a kernel: assignments, branches, loops and returns.

Every assignment makes a new C variable, so that a value never changes after it was bound. Where two branches meet,
a variable takes the value of either; a name that a loop assigns is a variable that the end of each pass assigns.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FunctionType

from rths_nodes.codegen.arrays import INDENT, address, memory_of
from rths_nodes.codegen.expressions import Call, Outside
from rths_nodes.codegen.loops import Looping, for_loop, leave_pass, used_after, while_loop
from rths_nodes.codegen.values import (
    Arr,
    Fn,
    Lines,
    Mismatch,
    Plain,
    Return,
    Scalar,
    Tup,
    Untranslatable,
    Value,
    form,
    from_python,
    kind_of_both,
    leaves,
    rebuilt,
)


def source_of(function: FunctionType) -> ast.FunctionDef:
    """Return the syntax tree of a Python function. Raises Untranslatable if its source is not available."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise Untranslatable(f"{function.__qualname__}: its source is not available ({error})") from error
    if not isinstance(tree, ast.FunctionDef):
        raise Untranslatable(f"{function.__qualname__}: is a lambda: write it as a function with a name")
    return tree


def apart(one: Arr, other: Arr) -> bool:
    """Return whether two parts of one memory are known to have no common element."""
    if one.base != other.base or not (one.offset.isdigit() and other.offset.isdigit()):
        return False
    first, second = sorted((one, other), key=lambda part: int(part.offset))
    reach = sum(((length or 1) - 1) * stride for length, stride in zip(first.shape, first.strides, strict=True))
    return int(first.offset) + reach < int(second.offset)


class FunctionTranslator(Looping):
    """Translates one Python function for arguments of one form.

    ``lines`` is the body afterwards, ``returned`` the values of all returns, ``declared`` the C variables.
    """

    def __init__(self, outside: Outside, call: Call, function: FunctionType, arguments: Sequence[Value]) -> None:
        super().__init__(outside, call, source_of(function))
        self.function = function
        self.first_line = function.__code__.co_firstlineno
        self.returns: list[tuple[ast.Return, Value]] = []
        self._outer = self._names_from_outside()
        self._bind_arguments(arguments)

    def _names_from_outside(self) -> dict[str, object]:
        names = dict(self.function.__globals__)
        cells = zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True)
        return names | {name: cell.cell_contents for name, cell in cells}

    def _bind_arguments(self, arguments: Sequence[Value]) -> None:
        names = [entry.arg for entry in self.tree.args.args]
        defaults = self.function.__defaults__ or ()
        missing = len(names) - len(arguments)
        if missing < 0 or missing > len(defaults):
            raise Untranslatable(
                f"{self.function.__qualname__}: takes {len(names)} arguments, not {len(arguments)}"
            )
        rest = [from_python(value, names[-1]) for value in defaults[len(defaults) - missing :]] if missing else []
        self.env = dict(zip(names, [*arguments, *rest], strict=True))
        self.arguments = arguments

    def translate(self) -> list[Value]:
        """Translate the body and return the values of all its return statements."""
        ended = self.block(self.tree.body)
        if not ended:
            self.lines.append(Return(Plain(None), self.indent))
        for statement, result in self.returns:
            with self.located(statement):
                self._refuse_moved(result)
        return [line.value for line in self.lines if isinstance(line, Return)]

    def lookup(self, name: str) -> Value:
        """Return the value of a name of the function, its closure, its module or Python."""
        if name in self.env:
            value = self.env[name]
            if isinstance(value, Plain) and isinstance(value.value, Mismatch):
                raise Untranslatable(f"{name} has two forms: one name has one type and shape within a function")
            return value
        if name in self._outer:
            return self.outside(self._outer[name], name)
        if name in vars(builtins):
            return Fn(vars(builtins)[name])
        raise Untranslatable(f"{name} is not defined")

    # -- blocks -------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> bool:
        """Translate statements; return True if control never reaches their end."""
        return any(self._translated(statement) for statement in statements)

    def _translated(self, statement: ast.stmt) -> bool:
        with self.located(statement):
            return self.statement(statement)

    @contextmanager
    def located(self, statement: ast.stmt) -> Iterator[None]:
        """Name file and line of a statement in an Untranslatable that is raised inside."""
        try:
            yield
        except Untranslatable as error:
            if error.placed:
                raise
            line = self.first_line + statement.lineno - 1
            placed = type(error)(f"{inspect.getsourcefile(self.function)}:{line}: {error}")
            placed.placed = True
            raise placed from error

    def statement(self, node: ast.stmt) -> bool:
        """Translate a statement; return True if control never reaches the next one."""
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert():
                return False
            case ast.Expr():
                self.value(node.value)
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self.assign(target, value)
            case ast.AnnAssign(value=ast.expr() as annotated):
                self.assign(node.target, self.value(annotated))
            case ast.AnnAssign():
                return False
            case ast.AugAssign():
                self._augment(node)
            case ast.If():
                return self._if(node)
            case ast.While():
                while_loop(self, node)
            case ast.For():
                for_loop(self, node)
            case ast.Return():
                value = Plain(None) if node.value is None else self.value(node.value)
                self.lines.append(Return(value, self.indent))
                self.returns.append((node, value))
                return True
            case ast.Break() | ast.Continue():
                loop = self.loops[-1]
                leave_pass(self, loop.end if isinstance(node, ast.Break) else loop.next)
                return True
            case _:
                raise Untranslatable(f"{type(node).__name__} is not among the statements of a kernel")
        return False

    def _refuse_moved(self, result: Value) -> None:
        """Raises Untranslatable if a new state has an array in a new place, and a step writes to one of the two.

        ``step(constants, state, ...)`` returns state and outputs. In C each place of a state has its own memory.
        """
        if len(self.arguments) < 2 or not isinstance(result, Tup) or len(result.items) != 2:
            return
        if not isinstance(self.arguments[1], Tup) or not isinstance(result.items[0], Tup):
            return
        state, new = leaves(self.arguments[1]), leaves(result.items[0])
        held = {part.base for argument in self.arguments for part in leaves(argument) if isinstance(part, Arr)}
        if len(state) != len(new):
            return
        arrays = [pair for pair in zip(state, new, strict=True) if all(isinstance(part, Arr) for part in pair)]
        for position, (old, now) in enumerate(arrays):
            assert isinstance(old, Arr)
            assert isinstance(now, Arr)
            memory = memory_of(self, now)
            earlier = (part for _, part in arrays[:position] if isinstance(part, Arr) and not apart(part, now))
            moved = memory & held if now != old else set()
            moved |= {name for part in earlier for name in memory & memory_of(self, part)}
            if moved and self.written & (moved | {old.base}):
                raise Untranslatable("an array of the new state is in another place as well: copy it")

    # -- assignments --------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Value) -> None:
        """Bind a name, unpack a tuple, or store into an array."""
        if isinstance(target, ast.Name):
            self.env[target.id] = self.bound(value, target.id)
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = self.items_of(value)
            if len(items) != len(target.elts):
                raise Untranslatable(f"{len(items)} values for {len(target.elts)} names")
            items = [self.stable(item) for item in items]
            for part, item in zip(target.elts, items, strict=True):
                self.assign(part, item)
        elif isinstance(target, ast.Subscript):
            self.store(target, value)
        else:
            raise Untranslatable(f"cannot assign to {ast.unparse(target)}")

    def bound(self, value: Value, name: str) -> Value:
        """Return ``value`` with every expression in a variable that is called after ``name``."""
        if isinstance(value, Scalar) and not value.simple:
            return self.variable(value, name)
        if isinstance(value, Tup):
            items = [self.bound(item, f"{name}_{position}") for position, item in enumerate(value.items)]
            return replace(value, items=tuple(items))
        return value

    def _augment(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Subscript):
            self.store(node.target, self.operated(node.op, self.value(node.target), self.value(node.value)))
            return
        assert isinstance(node.target, ast.Name)
        old, more = self.several([node.target, node.value])
        if isinstance(old, Arr):
            self.store_all(old, self.operated(node.op, old, more))
        else:
            self.assign(node.target, self.operated(node.op, old, more))

    # -- branches -----------------------------------------------------------------------------------------

    def _if(self, node: ast.If) -> bool:
        test = self.truth(self.value(node.test))
        if test.const is not None:
            return self.block(node.body if test.const else node.orelse)
        before = dict(self.env)
        with self.buffered() as body:
            one_ends = self.block(node.body)
            one = self.env
        self.env = dict(before)
        with self.buffered() as other_body:
            other_ends = self.block(node.orelse)
            other = self.env
        if not one_ends and not other_ends:
            self.env = self._joined(node, [one, other], [body, other_body])
        else:
            self.env = other if one_ends else one
        self.branch(test.c, body, other_body)
        return one_ends and other_ends

    def _joined(self, node: ast.If, ends: list[dict[str, Value]], bodies: list[Lines]) -> dict[str, Value]:
        """Return the names after two branches, which assign common variables at their ends.

        An array that only one branch replaces, in a loop that hands it on, is copied there, so that a pass without
        the branch copies nothing. References to the memory that this overwrites are copied before.
        """
        stored = [self._stored(ends[0], ends[1]), self._stored(ends[1], ends[0])]
        for end, body, pairs in zip(ends, bodies, stored, strict=True):
            with self._at_end_of(body):
                changed = {array.base for array, _ in pairs}
                for name in end if changed else ():
                    if self._is_needed(name, node):
                        end[name] = self._detached(end[name], changed, [array for array, _ in pairs])
                detached = [(array, self._detached(value, changed - {array.base})) for array, value in pairs]
                for array, value in detached:
                    self.store_all(array, value)
        one, other = ends
        after = {}
        for name in {**one, **other}:
            if name not in one or name not in other:
                after[name] = one[name] if name in one else other[name]
            elif one[name] == other[name]:
                after[name] = one[name]
            else:
                after[name] = self.meet(one[name], other[name], name, *bodies)
        return after

    def _stored(self, one: dict[str, Value], other: dict[str, Value]) -> list[tuple[Arr, Arr]]:
        """Return the arrays of ``one`` that replace an array which a loop hands on; they become that array."""
        pairs: list[tuple[Arr, Arr]] = []
        for name in (name for name in one if name in other):
            parts, their_parts = leaves(one[name]), leaves(other[name])
            if len(parts) != len(their_parts):
                continue
            for position, (mine, theirs) in enumerate(zip(parts, their_parts, strict=True)):
                if not isinstance(mine, Arr) or not isinstance(theirs, Arr) or theirs.base not in self.handed_on:
                    continue
                if mine != theirs and (mine.kind, mine.shape) == (theirs.kind, theirs.shape):
                    pairs.append((theirs, mine))
                    parts[position] = theirs
            one[name] = rebuilt(one[name], parts)
        return pairs

    def _detached(self, value: Value, changed: set[str], except_for: Sequence[Arr] = ()) -> Value:
        """Return ``value`` with copies of arrays in memory that is going to change."""
        parts = [
            self.copy(part)
            if isinstance(part, Arr) and changed & memory_of(self, part) and part not in except_for
            else part
            for part in leaves(value)
        ]
        return rebuilt(value, parts)

    def _is_needed(self, name: str, node: ast.stmt) -> bool:
        return used_after(self, name, node) or any(name in loop.carried for loop in self.loops)

    @contextmanager
    def _at_end_of(self, body: Lines) -> Iterator[None]:
        """Emit to the end of a branch."""
        outer, self.lines = self.lines, body
        self.indent += 1
        yield
        self.indent -= 1
        self.lines = outer

    def meet(self, one: Value, other: Value, name: str, body: Lines, other_body: Lines) -> Value:
        """Return one value for the two ends of branches, to whose lines the assignments are appended."""
        parts, their_parts = leaves(one), leaves(other)
        if len(parts) != len(their_parts) or form(rebuilt(one, [Plain(None)] * len(parts))) != form(
            rebuilt(other, [Plain(None)] * len(parts))
        ):
            return Plain(Mismatch(name))
        met: list[Value] = []
        for mine, theirs in zip(parts, their_parts, strict=True):
            if mine == theirs:
                met.append(mine)
            elif isinstance(mine, Scalar) and isinstance(theirs, Scalar):
                kind = kind_of_both(mine, theirs)
                variable = self.declare(kind, name)
                body.append(f"{INDENT * (self.indent + 1)}{variable.c} = {mine.c};")
                other_body.append(f"{INDENT * (self.indent + 1)}{variable.c} = {theirs.c};")
                met.append(variable)
            elif isinstance(mine, Arr) and isinstance(theirs, Arr) and form(mine) == form(theirs):
                pointer = self.declare_pointer(mine, name)
                self.sources[pointer] = memory_of(self, mine) | memory_of(self, theirs)
                for lines, array in ((body, mine), (other_body, theirs)):
                    lines.append(f"{INDENT * (self.indent + 1)}{pointer} = {address(array)};")
                both = mine.temporary and theirs.temporary
                met.append(replace(mine, base=pointer, offset="0", temporary=both))
            else:
                return Plain(Mismatch(name))
        return rebuilt(one, met)

    def branch(self, test: str, body: Lines, other_body: Lines) -> None:
        """Emit an if statement with the lines of its branches."""
        if body:
            self.emit(f"if ({test}) {{")
            self.lines += body
            if other_body:
                self.emit("} else {")
                self.lines += other_body
            self.emit("}")
        elif other_body:
            self.emit(f"if (!({test})) {{")
            self.lines += other_body
            self.emit("}")
