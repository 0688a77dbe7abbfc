# SPDX-License-Identifier: Apache-2.0
"""Translate the loops of a kernel.

A name that a pass changes is a C variable, which the end of each pass assigns. Trial translations of a pass find
these names and their forms: a pass may turn an integer into a float, or replace an array.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from rths_nodes.codegen.expressions import Expressions, Surroundings
from rths_nodes.codegen.values import (
    INT,
    Arr,
    Mismatch,
    Plain,
    Range,
    Scalar,
    Value,
    WrittenOut,
    common,
    leaves,
    rebuilt,
    scalar,
)

UNROLLED = 8
"""Longest array of which a loop over its elements is written out."""
TRIALS = 6
"""Trial translations of a loop until the forms of its names are stable."""
HANDED_ON = "handed_on__"
Block = Callable[[Sequence[ast.stmt]], bool]
"""Translates statements; True if control never reaches their end."""


@dataclass
class Loop:
    """A loop under translation: the variables that its passes hand on, and the C statements that leave a pass.

    In a trial translation ``ends`` collects the names at each end of a pass.
    """

    carried: dict[str, Value]
    end: str
    next: str
    ends: list[dict[str, Value]] | None = None


class Looping(Expressions):
    """Translates loops; ``tree`` is the function, ``loops`` are those around the present statement."""

    def __init__(self, program: Surroundings, names: Mapping[str, object], tree: ast.FunctionDef) -> None:
        super().__init__(program, names)
        self.loops: list[Loop] = []
        self.last_uses: dict[str, int] = {}
        """Last line in which a name is read."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.last_uses[node.id] = max(node.lineno, self.last_uses.get(node.id, 0))

    def while_loop(self, node: ast.While, block: Block) -> None:
        """Translate a while statement."""

        def begin() -> None:
            test = self.truth(self.value(node.test))
            if test.const is not True:
                with self.nested(f"if (!({test.c})) {{"):
                    self.leave_pass(self.loops[-1].end)

        self._loop(node, "for (;;)", begin, block)

    def for_loop(self, node: ast.For, block: Block) -> None:
        """Translate a for statement: over a range or a long array a C loop, over others pass by pass."""
        over = self.value(node.iter)
        if isinstance(over, Range):
            self._over_range(node, over, block)
        elif isinstance(over, Arr) and len(over.shape) == 1 and over.size > UNROLLED:
            index = self.declare(INT, "index")
            item = Scalar(over.kind, over.at(index.c))
            head = f"for ({index.c} = 0; {index.c} < {over.size}; ++{index.c})"
            self._loop(node, head, partial(self.assign, node.target, item), block)
        else:
            items = self.items_of(over)  # an element of an array is read by its pass
            self._unrolled(node, items if isinstance(over, Arr) else [self.stable(item) for item in items], block)

    def _over_range(self, node: ast.For, over: Range, block: Block) -> None:
        """Translate a loop over integers; it is written out if its body needs the value of the index."""
        try:
            with self._undone_on(WrittenOut):
                index = self.declare(INT, node.target.id if isinstance(node.target, ast.Name) else "index")
                begin, end = self.stable(over.begin), self.stable(over.end)
                head = f"for ({index.c} = {begin.c}; {index.c} < {end.c}; ++{index.c})"
                self._loop(node, head, partial(self.assign, node.target, index), block)
        except WrittenOut:
            if over.begin.const is None or over.end.const is None:
                raise
            self._unrolled(node, self.items_of(over), block)

    @contextmanager
    def _undone_on(self, error: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """Forget a translation that raises ``error``, or any if none is named."""
        kept = dict(self.env), list(self.declared), dict(self.taken), dict(self.sources), self.indent
        lines, loops = list(self.lines), list(self.loops)
        raised = True
        try:
            yield
            raised = False
        finally:
            if raised or not error:
                self.env, self.declared, self.taken, self.sources, self.indent = kept
                self.lines[:], self.loops = lines, loops

    def _loop(self, node: ast.For | ast.While, head: str, begin: Callable[[], None], block: Block) -> None:
        """Translate a C loop; ``begin`` emits the first statements of each pass."""
        carried = self._carried(node, begin, block)
        with self.nested(f"{head} {{"):
            self._pass(node, begin, block, Loop(carried, "break;", "continue;"))
        self.env |= carried

    def _unrolled(self, node: ast.For, items: list[Value], block: Block) -> None:
        """Write a loop out, pass by pass, so that the items may have forms of their own."""
        if not items or not any(
            isinstance(statement, (ast.Break, ast.Continue)) for statement in statements_of(node.body)
        ):
            for item in items:
                self.assign(node.target, item)
                block(node.body)
            return
        carried = self._carried(node, partial(self.assign, node.target, items[0]), block)
        end = self.name_for("end")
        for item in items:
            after = self.name_for("next")
            self.env |= carried
            with self.nested("{"):
                loop = Loop(carried, f"goto {end};", f"goto {after};")
                self._pass(node, partial(self.assign, node.target, item), block, loop)
            self.emit(f"{after}:;")
        self.emit(f"{end}:;")
        self.env |= carried

    def _pass(self, node: ast.For | ast.While, begin: Callable[[], None], block: Block, loop: Loop) -> None:
        self.loops.append(loop)
        begin()
        if not block(node.body):
            self._hand_on(loop)
        self.loops.pop()

    def leave_pass(self, statement: str) -> None:
        """Leave a pass of the innermost loop by a C statement."""
        self._hand_on(self.loops[-1])
        self.emit(statement)

    # -- names that passes hand on ------------------------------------------------------------------------

    def _carried(self, node: ast.For | ast.While, begin: Callable[[], None], block: Block) -> dict[str, Value]:
        """Declare the variables that the passes of a loop hand on, assign their first values, and bind the names.

        A trial begins with the values that the names have before the loop. A number or an array that differs at
        one of its ends has the C name ``handed_on...`` in the next trial, until nothing differs.
        """
        end_line = node.end_lineno or node.lineno
        names = sorted(
            name for name in assigned_in(node.body) if name in self.env or self.last_uses.get(name, 0) > end_line
        )
        firsts = {name: self.env[name] for name in names if name in self.env}
        plan = firsts
        for _ in range(TRIALS):
            loop = Loop({}, "break;", "continue;", ends=[])
            with self._undone_on(), self.buffered():
                self.env |= plan
                self._pass(node, begin, block, loop)
            ends = {name: [end[name] for end in loop.ends or [] if name in end] for name in names}
            values = {name: [plan[name], *ends[name]] if name in plan else ends[name] for name in names}
            result = {name: handed_on(name, values[name], name not in firsts) for name in names if values[name]}
            if result == plan:
                break
            plan = result
        carried = {name: self._declared(plan[name], firsts.get(name), name) for name in plan}
        self.env |= carried
        return carried

    def _declared(self, planned: Value, first: Value | None, name: str) -> Value:
        """Declare variables for what a loop changes of ``planned``, and assign ``first`` to them."""
        firsts = leaves(first) if first is not None else []
        parts: list[Value] = []
        for position, part in enumerate(leaves(planned)):
            begin = firsts[position] if position < len(firsts) else None
            if isinstance(part, Scalar) and part.c.startswith(HANDED_ON):
                part = self.declare(part.kind, name)
                if isinstance(begin, Scalar):
                    self.emit(f"{part.c} = {begin.c};")
            elif isinstance(part, Arr) and part.base.startswith(HANDED_ON):
                part = self.fresh(part.kind, part.shape, name)
                if isinstance(begin, Arr):
                    self.store(part, begin)
            parts.append(part)
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
        changed = {memory(variable) for variable, _ in pairs}
        for at, (variable, value) in enumerate(pairs):
            overwritten = changed - {memory(variable)}
            if isinstance(value, Arr) and overwritten & self.memory_of(value):
                pairs[at] = variable, self.copy(value)
            elif isinstance(value, Scalar) and overwritten.intersection(re.findall(r"\w+", value.c)):
                pairs[at] = variable, self.variable(value, "next")
        for variable, value in pairs:
            if isinstance(variable, Scalar):
                self.emit(f"{variable.c} = {scalar(value).c};")
            elif isinstance(value, Arr) and variable.base in self.memory_of(value) - {value.base}:
                with self.nested(f"if ({value.address} != {variable.address}) {{"):
                    self.store(variable, value)
            else:
                self.store(variable, value)


def memory(variable: Scalar | Arr) -> str:
    """Return the C name of a variable or an array."""
    return variable.c if isinstance(variable, Scalar) else variable.base


def handed_on(name: str, values: Sequence[Value], always: bool) -> Value:
    """Return one value for the values of a name at the begin and the ends of a pass."""
    columns = [leaves(value) for value in values]
    if len(set(map(len, columns))) > 1:
        return Plain(Mismatch(name))
    parts = [
        common(parts, f"{HANDED_ON}{name}_{position}", always)
        for position, parts in enumerate(zip(*columns, strict=True))
    ]
    held = [part for part in parts if part is not None]
    return rebuilt(values[0], held) if len(held) == len(parts) else Plain(Mismatch(name))


def statements_of(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a loop's body, without nested loops."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.If):
            yield from statements_of([*statement.body, *statement.orelse])


def assigned_in(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the names that statements assign."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
