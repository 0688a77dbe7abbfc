# SPDX-License-Identifier: Apache-2.0
"""Translate the statements of a kernel: assignments, branches, loops and returns.

Every assignment makes a new C variable, so that a value never changes after it was bound. Where two branches meet,
a variable takes the value of either; a name that a loop assigns is a variable that the end of each pass assigns.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType

from rths_nodes.codegen.expressions import Surroundings
from rths_nodes.codegen.loops import Looping
from rths_nodes.codegen.values import Arr, Plain, Return, Tup, Untranslatable, Value, from_python, leaves


class FunctionTranslator(Looping):
    """Translates one Python function for arguments of one form.

    ``lines`` is the body afterwards, ``declared`` the C variables.
    """

    def __init__(self, program: Surroundings, function: FunctionType, arguments: Sequence[Value]) -> None:
        self.function, self.tree = function, tree_of(function)
        super().__init__(program, names_of(function), self.tree)
        self.returns: list[tuple[ast.Return, Value]] = []
        self.arguments = arguments
        names = [argument.arg for argument in self.tree.args.args]
        defaults = function.__defaults__ or ()
        missing = len(names) - len(arguments)
        if not 0 <= missing <= len(defaults):
            raise Untranslatable(f"{function.__qualname__}: takes {len(names)} arguments, not {len(arguments)}")
        rest = [from_python(value, names[-1]) for value in defaults[len(defaults) - missing :]]
        self.env = dict(zip(names, [*arguments, *rest], strict=True))

    def translate(self) -> list[Value]:
        """Translate the body and return the values of all its return statements."""
        if not self.block(self.tree.body):
            self.lines.append(Return(Plain(None), self.indent))
        for statement, result in self.returns:
            with self._located(statement):
                self._refuse_moved(result)
        return [line.value for line in self.lines if isinstance(line, Return)]

    def block(self, statements: Sequence[ast.stmt]) -> bool:
        """Translate statements; return True if control never reaches their end."""
        for statement in statements:
            with self._located(statement):
                if self._statement(statement):
                    return True
        return False

    @contextmanager
    def _located(self, statement: ast.stmt) -> Iterator[None]:
        """Name file and line of a statement in an Untranslatable that is raised inside."""
        try:
            yield
        except Untranslatable as error:
            if error.placed:
                raise
            line = self.function.__code__.co_firstlineno + statement.lineno - 1
            placed = type(error)(f"{inspect.getsourcefile(self.function)}:{line}: {error}")
            placed.placed = True
            raise placed from error

    def _statement(self, node: ast.stmt) -> bool:
        """Translate a statement; return True if control never reaches the next one."""
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert() | ast.AnnAssign(value=None):
                pass
            case ast.Expr():
                self.value(node.value)
            case ast.Assign():
                value = self.value(node.value)
                for target in node.targets:
                    self.assign(target, value)
            case ast.AnnAssign(value=ast.expr() as annotated):
                self.assign(node.target, self.value(annotated))
            case ast.AugAssign():
                self.augment(node)
            case ast.If():
                return self._if(node)
            case ast.While():
                self.while_loop(node, self.block)
            case ast.For():
                self.for_loop(node, self.block)
            case ast.Return():
                value = Plain(None) if node.value is None else self.value(node.value)
                self.lines.append(Return(value, self.indent))
                self.returns.append((node, value))
                return True
            case ast.Break() | ast.Continue():
                loop = self.loops[-1]
                self.leave_pass(loop.end if isinstance(node, ast.Break) else loop.next)
                return True
            case _:
                raise Untranslatable(f"{type(node).__name__} is not among the statements of a kernel")
        return False

    def _if(self, node: ast.If) -> bool:
        test = self.truth(self.value(node.test))
        if test.const is not None:
            return self.block(node.body if test.const else node.orelse)
        before = dict(self.env)
        with self.buffered() as body:
            one_ends = self.block(node.body)
        one, self.env = self.env, before
        with self.buffered() as other_body:
            other_ends = self.block(node.orelse)
        other = self.env
        if one_ends or other_ends:
            self.env = other if one_ends else one
        else:
            bodies = [body, other_body]
            self.env = one | other
            for name in one:
                if name in other and one[name] != other[name]:
                    self.env[name] = self.meet(one[name], other[name], name, bodies)
        self.branch(test.c, body, other_body)
        return one_ends and other_ends

    def _refuse_moved(self, result: Value) -> None:
        """Raises Untranslatable if a new state has an array in a new place, and a step writes to one of the two.

        ``step(constants, state, ...)`` returns state and outputs. In C each place of a state has its own memory.
        """
        if len(self.arguments) < 2 or not isinstance(result, Tup) or len(result.items) != 2:
            return
        state, new = self.arguments[1], result.items[0]
        if not isinstance(state, Tup) or not isinstance(new, Tup) or len(leaves(state)) != len(leaves(new)):
            return
        held = {part.base for argument in self.arguments for part in leaves(argument) if isinstance(part, Arr)}
        pairs = zip(leaves(state), leaves(new), strict=True)
        arrays = [(old, now) for old, now in pairs if isinstance(old, Arr) and isinstance(now, Arr)]
        for position, (old, now) in enumerate(arrays):
            memory = self.memory_of(now)
            moved = memory & held if now != old else set()
            for _, part in arrays[:position]:
                moved |= set() if apart(part, now) else memory & self.memory_of(part)
            if moved and self.written & (moved | {old.base}):
                raise Untranslatable("an array of the new state is in another place as well: copy it")


def tree_of(function: FunctionType) -> ast.FunctionDef:
    """Return the syntax tree of a Python function. Raises Untranslatable if its source is not available."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise Untranslatable(f"{function.__qualname__}: its source is not available ({error})") from error
    if not isinstance(tree, ast.FunctionDef):
        raise Untranslatable(f"{function.__qualname__}: is a lambda: write it as a function with a name")
    return tree


def names_of(function: FunctionType) -> dict[str, object]:
    """Return the names of a function's module and closure, with their objects."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return function.__globals__ | {name: cell.cell_contents for name, cell in cells}


def apart(one: Arr, other: Arr) -> bool:
    """Return whether two parts of one memory are known to have no common element."""
    if one.base != other.base or not (one.offset.isdigit() and other.offset.isdigit()):
        return False
    first, second = sorted((one, other), key=lambda part: int(part.offset))
    reach = sum(((length or 1) - 1) * stride for length, stride in zip(first.shape, first.strides, strict=True))
    return int(first.offset) + reach < int(second.offset)
