# SPDX-License-Identifier: Apache-2.0
"""Translate the statements of a kernel: assignments, branches, loops and returns.

Every assignment makes a new C variable, so that a value never changes after it was bound. Where two branches meet,
a variable takes the value of either. A name that a pass of a loop changes is a variable that the end of each pass
assigns. Trial translations of a pass find these names and their forms: a pass may turn an integer into a float, or
replace an array.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType

from rths_nodes.codegen.expressions import Expressions, Surroundings
from rths_nodes.codegen.values import (
    INT,
    MISMATCH,
    RETURNED,
    Arr,
    Plain,
    Range,
    Return,
    Scalar,
    Tup,
    Untranslatable,
    Value,
    WrittenOut,
    constant,
    from_python,
    joined,
    leaves,
    rebuilt,
)

UNROLLED = 8
"""Longest array of which a loop over its elements is written out."""
TRIALS = 6
"""Trial translations of a loop until the forms of its names are stable."""
HANDED_ON = "handed_on__"


@dataclass
class Loop:
    """A loop under translation: the variables that its passes hand on, and the C statements that leave a pass.

    In a trial translation ``ends`` collects the names at each end of a pass.
    """

    carried: dict[str, Value]
    end: str
    next: str
    ends: list[dict[str, Value]] | None = None


class FunctionTranslator(Expressions):
    """Translates one Python function for arguments of one form.

    ``lines`` is the body afterwards, ``declared`` the C variables.
    """

    def __init__(self, program: Surroundings, function: FunctionType, arguments: Sequence[Value]) -> None:
        self.function, self.tree = function, tree_of(function)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        super().__init__(program, function.__globals__ | {name: cell.cell_contents for name, cell in cells})
        self.loops: list[Loop] = []
        self.returns: list[tuple[ast.Return, Value]] = []
        self.arguments = arguments
        names = [argument.arg for argument in self.tree.args.args]
        defaults = function.__defaults__ or ()
        missing = len(names) - len(arguments)
        if not 0 <= missing <= len(defaults):
            raise Untranslatable(f"{function.__qualname__}: takes {len(names)} arguments, not {len(arguments)}")
        rest = [from_python(value, names[-1]) for value in defaults[len(defaults) - missing :]]
        self.env = dict(zip(names, [*arguments, *rest], strict=True))

    def translate(self) -> Value:
        """Translate the body and return a value for all its return statements."""
        if not self.block(self.tree.body):
            self.lines.append(Return(Plain(None), self.indent))
        result = joined([line.value for line in self.lines if isinstance(line, Return)], RETURNED)
        for statement, value in self.returns:
            with self._located(statement):
                if result is MISMATCH:
                    raise Untranslatable("two returns give values of different form")
                self._refuse_moved(value)
        return result

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
            line = self.function.__code__.co_firstlineno + statement.lineno - 1
            error.location = error.location or f"{inspect.getsourcefile(self.function)}:{line}: "
            raise

    def _statement(self, node: ast.stmt) -> bool:
        """Translate a statement; return True if control never reaches the next one."""
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
                self.augment(node)
            case ast.If():
                return self._if(node)
            case ast.While():
                self.while_loop(node)
            case ast.For():
                self.for_loop(node)
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
        undo = self._undo()
        test = self.truth(self.value(node.test))
        if test.const is not None:
            return self.block(node.body if test.const else node.orelse)
        before = dict(self.env)
        with self.buffered() as body:
            left = self.block(node.body)
        one, self.env = self.env, before
        if left:
            self.branch(test.c, body, [])
            return self.block(node.orelse)
        with self.buffered() as other_body:
            if self.block(node.orelse):
                undo()
                return self._if(
                    ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), node.test), node.orelse, node.body), node)
                )
        bound = [(one, body), (self.env, other_body)]
        later = self._read_after(node) if bound[0][0].keys() ^ bound[1][0].keys() else set()
        self.env = {}
        for name in dict.fromkeys([*bound[0][0], *bound[1][0]]):
            ends = [(env[name], lines) for env, lines in bound if name in env]
            if len(ends) > 1 and ends[0][0] == ends[1][0]:
                self.env[name] = ends[0][0]
            elif len(ends) > 1 or name in later:
                self.env[name] = self.meet(name, ends)
        self.branch(test.c, body, other_body)
        return False

    def _read_after(self, node: ast.stmt) -> set[str]:
        """Return the names that are read in lines after a statement."""
        reads = (name for name in names_in([self.tree]) if isinstance(name.ctx, ast.Load))
        return {name.id for name in reads if name.lineno > (node.end_lineno or 0)}

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
            moved = moved.union(*(memory & self.memory_of(part) for _, part in arrays[:position]))
            if moved and self.written & (moved | {old.base}):
                raise Untranslatable("an array of the new state is in another place as well: copy it")

    # -- loops --

    def while_loop(self, node: ast.While) -> None:
        """Translate a while statement."""

        def begin() -> None:
            test = self.truth(self.value(node.test))
            if test.const is not True:
                with self.nested(f"if (!({test.c})) {{"):
                    self.leave_pass(self.loops[-1].end)

        self._loop(node, "for (;;)", begin)

    def for_loop(self, node: ast.For) -> None:
        """Translate a for statement: over a range or a long array a C loop, over others pass by pass.

        A loop over a range is written out if its body needs the value of the index.
        """
        over = self.value(node.iter)
        undo = self._undo()
        try:
            if isinstance(over, Range):
                return self._counted(node, over, lambda index: index)
            if isinstance(over, Arr) and len(over.shape) == 1 and over.size > UNROLLED:
                return self._counted(node, Range(constant(0), constant(over.size)), partial(self.row, over))
        except WrittenOut:
            if isinstance(over, Range) and None in (over.begin.const, over.end.const):
                raise
            undo()
        items = self.items_of(over)  # an element of an array is read by its pass
        return self._unrolled(node, items if isinstance(over, Arr) else [self.stable(item) for item in items])

    def _counted(self, node: ast.For, over: Range, item: Callable[[Scalar], Value]) -> None:
        """Translate a loop over integers, of which each gives the item of a pass."""
        index = Scalar(INT, self.name_for(node.target.id if isinstance(node.target, ast.Name) else "index"))
        begin, end = self.stable(over.begin), self.stable(over.end)
        head = f"for (int64_t {index.c} = {begin.c}; {index.c} < {end.c}; ++{index.c})"
        self._loop(node, head, partial(self.assign, node.target, item(index)))

    def _undo(self) -> Callable[[], None]:
        """Return a function that forgets all that is translated from now on."""
        env, arrays, taken, sources = dict(self.env), list(self.arrays), dict(self.taken), dict(self.sources)
        lines, indent, loops = len(self.lines), self.indent, list(self.loops)

        def undo() -> None:
            self.env, self.arrays, self.taken, self.sources = env, arrays, taken, sources
            del self.lines[lines:]
            self.indent, self.loops = indent, loops

        return undo

    def _loop(self, node: ast.For | ast.While, head: str, begin: Callable[[], None]) -> None:
        """Translate a C loop; ``begin`` emits the first statements of each pass."""
        carried = self._carried(node, begin)
        env = dict(self.env)  # other names are variables of the block
        with self.nested(f"{head} {{"):
            self._pass(node, begin, Loop(carried, "break;", "continue;"))
        self.env = env
        if isinstance(node, ast.For):  # its variables count one too far now
            for name in names_in([node.target]):
                self.env.pop(name.id, None)

    def _unrolled(self, node: ast.For, items: list[Value]) -> None:
        """Write a loop out, pass by pass, so that the items may have forms of their own."""
        parts = [part for statement in node.body for part in ast.walk(statement)]
        if not items or not any(isinstance(part, (ast.Break, ast.Continue)) for part in parts):
            for item in items:
                self.assign(node.target, item)
                self.block(node.body)
            return
        carried = self._carried(node, partial(self.assign, node.target, items[0]))
        end, env = self.name_for("end"), dict(self.env)
        for item in items:
            after = self.name_for("next")
            with self.nested("{"):
                loop = Loop(carried, f"goto {end};", f"goto {after};")
                self._pass(node, partial(self.assign, node.target, item), loop)
            self.env = dict(env)
            self.emit(f"{after}:;")
        self.emit(f"{end}:;")

    def _pass(self, node: ast.For | ast.While, begin: Callable[[], None], loop: Loop) -> None:
        self.loops.append(loop)
        begin()
        if not self.block(node.body):
            self._hand_on(loop)
        self.loops.pop()

    def leave_pass(self, statement: str) -> None:
        """Leave a pass of the innermost loop by a C statement."""
        self._hand_on(self.loops[-1])
        self.emit(statement)

    # -- names that passes hand on ------------------------------------------------------------------------

    def _carried(self, node: ast.For | ast.While, begin: Callable[[], None]) -> dict[str, Value]:
        """Declare the variables that the passes of a loop hand on, assign their first values, and bind the names.

        A trial begins with the values that the names have before the loop. A number or an array that differs at
        one of its ends has the C name ``handed_on...`` in the next trial, until nothing differs.
        """
        needed = self._read_after(node).union(self.env)
        names = sorted(needed & {name.id for name in names_in(node.body) if isinstance(name.ctx, ast.Store)})
        firsts = {name: self.env[name] for name in names if name in self.env}
        plan = firsts
        for _ in range(TRIALS):
            loop = Loop({}, "break;", "continue;", ends=[])
            undo = self._undo()
            self.env |= plan
            self._pass(node, begin, loop)
            undo()
            bound = [plan, *(loop.ends or [])]
            values = {name: [env[name] for env in bound if name in env] for name in names}
            pairs = ((name, ends) for name, ends in values.items() if ends)
            result = {name: joined(ends, f"{HANDED_ON}{name}_", name not in firsts) for name, ends in pairs}
            if result == plan:
                break
            plan = result
        carried = {name: self._declared(plan[name], firsts.get(name), name) for name in plan}
        self.env |= carried
        return carried

    def _declared(self, planned: Value, first: Value | None, name: str) -> Value:
        """Declare variables for what a loop changes of ``planned``, and assign ``first`` to them."""
        parts = leaves(planned)
        firsts: Sequence[Value | None] = [None] * len(parts) if first is None else leaves(first)
        for position, (part, begin) in enumerate(zip(parts, firsts, strict=False)):
            if isinstance(part, (Scalar, Arr)) and part.c.startswith(HANDED_ON):
                if isinstance(part, Arr):
                    parts[position] = self.fresh(part.kind, part.shape, name)
                    if begin is not None:
                        self.store(parts[position], begin)
                elif isinstance(begin, Scalar):
                    parts[position] = self.variable(replace(part, c=begin.c), name)
                else:
                    parts[position] = self.declare(part.kind, name)
        return rebuilt(planned, parts)

    def _hand_on(self, loop: Loop) -> None:
        """Assign the variables of a loop at the end of a pass, as if all at once."""
        if loop.ends is not None:
            loop.ends.append(dict(self.env))
            return
        pairs: list[tuple[Scalar | Arr, Value]] = []
        for name, carried in loop.carried.items():
            if name in self.env and not isinstance(carried, Plain):
                values = zip(leaves(carried), leaves(self.env[name]), strict=True)
                pairs += [(one, value) for one, value in values if isinstance(one, (Scalar, Arr)) and one != value]
        changed = {variable.c for variable, _ in pairs}
        for at, (variable, value) in enumerate(pairs):
            overwritten = changed - {variable.c}
            if isinstance(value, Arr) and overwritten & self.memory_of(value):
                pairs[at] = variable, self.copy(value)
            elif isinstance(value, Scalar) and overwritten.intersection(re.findall(r"\w+", value.c)):
                pairs[at] = variable, self.variable(value, "next")
        for variable, value in pairs:
            self.store(variable, value)


def tree_of(function: FunctionType) -> ast.FunctionDef:
    """Return the syntax tree of a Python function. Raises Untranslatable if its source is not available."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise Untranslatable(f"{function.__qualname__}: its source is not available ({error})") from error
    if not isinstance(tree, ast.FunctionDef):
        raise Untranslatable(f"{function.__qualname__}: is a lambda: write it as a function with a name")
    return tree


def names_in(nodes: Sequence[ast.AST]) -> Iterator[ast.Name]:
    """Yield the names in statements."""
    return (part for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name))
