# SPDX-License-Identifier: Apache-2.0
"""Translate the loops of a kernel.

A name that a pass changes is a C variable, which the end of each pass assigns. Trial translations of a pass find
these names and their forms: a pass may turn an integer into a float, or replace an array.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rths_nodes.codegen.arrays import memory_of
from rths_nodes.codegen.expressions import Call, Expressions, Outside
from rths_nodes.codegen.values import (
    INT,
    Arr,
    Mismatch,
    Plain,
    Range,
    Scalar,
    Value,
    WrittenOut,
    kind_of_both,
    leaves,
    rebuilt,
    row_strides,
    scalar,
)

UNROLLED = 8
"""Longest array of which a loop over its elements is written out."""
TRIALS = 5
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


class Looping(Expressions):
    """The part of a translator that knows the loops around a statement."""

    def __init__(self, outside: Outside, call: Call, tree: ast.FunctionDef) -> None:
        super().__init__(outside, call)
        self.tree = tree
        self.loops: list[Loop] = []
        self.handed_on: set[str] = set()
        """Memory of arrays that a loop hands on."""

    def block(self, statements: Sequence[ast.stmt]) -> bool:
        """Translate statements; return True if control never reaches their end."""
        raise NotImplementedError


def while_loop(t: Looping, node: ast.While) -> None:
    def begin() -> None:
        test = t.truth(t.value(node.test))
        if test.const is not True:
            t.emit(f"if (!({test.c})) {{")
            t.indent += 1
            leave_pass(t, t.loops[-1].end)
            t.indent -= 1
            t.emit("}")

    _loop(t, node, "for (;;)", begin)


def for_loop(t: Looping, node: ast.For) -> None:
    over = t.value(node.iter)
    if isinstance(over, Range):
        _over_range(t, node, over)
    elif isinstance(over, Arr) and len(over.shape) == 1 and over.size > UNROLLED:
        index = t.declare(INT, "index")
        item = Scalar(over.kind, over.at(index.c))
        head = f"for ({index.c} = 0; {index.c} < {over.size}; ++{index.c})"
        _loop(t, node, head, lambda: t.assign(node.target, item))
    else:
        items = t.items_of(over)  # an element of an array is read by its pass
        _unrolled(t, node, items if isinstance(over, Arr) else [t.stable(item) for item in items])


def _over_range(t: Looping, node: ast.For, over: Range) -> None:
    """Translate a loop over integers; it is written out if its body needs the value of the index."""
    kept = dict(t.env), list(t.declared), dict(t.taken), t.indent
    lines, loops = len(t.lines), len(t.loops)
    try:
        index = t.declare(INT, node.target.id if isinstance(node.target, ast.Name) else "index")
        begin, end = t.stable(over.begin), t.stable(over.end)
        head = f"for ({index.c} = {begin.c}; {index.c} < {end.c}; ++{index.c})"
        _loop(t, node, head, lambda: t.assign(node.target, index))
    except WrittenOut:
        if over.begin.const is None or over.end.const is None:
            raise
        t.env, t.declared, t.taken, t.indent = kept
        del t.lines[lines:], t.loops[loops:]
        _unrolled(t, node, t.items_of(over))


def _loop(t: Looping, node: ast.For | ast.While, head: str, begin: Callable[[], None]) -> None:
    """Translate a C loop; ``begin`` emits the first statements of each pass."""
    plan = _plan(t, node, begin)
    carried = {name: _mutable(t, plan[name], t.env.get(name), name) for name in plan}
    t.env |= carried
    t.emit(f"{head} {{")
    _pass(t, node, begin, Loop(carried, "break;", "continue;"))
    t.emit("}")
    t.env |= carried


def _unrolled(t: Looping, node: ast.For, items: list[Value]) -> None:
    """Write a loop out, pass by pass, so that the items may have forms of their own."""
    if not items:
        return
    if not any(isinstance(entry, (ast.Break, ast.Continue)) for entry in statements_of(node.body)):
        for item in items:
            t.assign(node.target, item)
            t.block(node.body)
        return
    plan = _plan(t, node, lambda: t.assign(node.target, items[0]))
    carried = {name: _mutable(t, plan[name], t.env.get(name), name) for name in plan}
    end = t.name_for("end")
    for item in items:
        after = t.name_for("next")
        t.env |= carried
        t.emit("{")
        _pass(t, node, partial(t.assign, node.target, item), Loop(carried, f"goto {end};", f"goto {after};"))
        t.emit("}")
        t.emit(f"{after}:;")
    t.emit(f"{end}:;")
    t.env |= carried


def _pass(t: Looping, node: ast.For | ast.While, begin: Callable[[], None], loop: Loop) -> None:
    t.indent += 1
    t.loops.append(loop)
    begin()
    if not t.block(node.body):
        _hand_on(t, loop)
    t.loops.pop()
    t.indent -= 1


def leave_pass(t: Looping, statement: str) -> None:
    """Leave a pass of the innermost loop by a C statement."""
    _hand_on(t, t.loops[-1])
    t.emit(statement)


def _plan(t: Looping, node: ast.For | ast.While, begin: Callable[[], None]) -> dict[str, Value]:
    """Return the values that the passes of a loop hand on, by name.

    A number or array that a pass changes has the C name ``handed_on...``. Trial translations find them: a pass may
    turn an integer into a float, or an array into another one.
    """
    names = sorted(name for name in assigned_in(node.body) if name in t.env or used_after(t, name, node))
    plan = {name: changing(t.env[name], name) for name in names if name in t.env}
    for _ in range(TRIALS):
        ends = _trial(t, node, begin, plan)
        after = {name: merged(name, plan.get(name), [end[name] for end in ends if name in end]) for name in names}
        result = {name: value for name, value in after.items() if value is not None}
        if result == plan:
            break
        plan = result
    return {
        name: settled(value, t.env.get(name), [end[name] for end in ends if name in end])
        for name, value in plan.items()
    }


def _trial(
    t: Looping, node: ast.For | ast.While, begin: Callable[[], None], plan: dict[str, Value]
) -> list[dict[str, Value]]:
    """Translate a pass without keeping its text; return the values of names at each of its ends."""
    kept = dict(t.env), list(t.declared), dict(t.taken), set(t.handed_on), dict(t.sources)
    loop = Loop({}, "break;", "continue;", ends=[])
    t.env |= plan
    with t.buffered():
        t.indent -= 1
        _pass(t, node, begin, loop)
        t.indent += 1
    t.env, t.declared, t.taken, t.handed_on, t.sources = kept
    assert loop.ends is not None
    return loop.ends


def used_after(t: Looping, name: str, loop: ast.stmt) -> bool:
    last = loop.end_lineno or loop.lineno
    uses = (entry for entry in ast.walk(t.tree) if isinstance(entry, ast.Name) and entry.id == name)
    return any(entry.lineno > last and isinstance(entry.ctx, ast.Load) for entry in uses)


def _hand_on(t: Looping, loop: Loop) -> None:
    """Assign the variables of a loop at the end of a pass, as if all at once."""
    if loop.ends is not None:
        loop.ends.append(dict(t.env))
        return
    pairs: list[tuple[Scalar | Arr, Value]] = []
    for name, carried in loop.carried.items():
        if name in t.env and not isinstance(carried, Plain):
            values = zip(leaves(carried), leaves(t.env[name]), strict=True)
            pairs += [(one, value) for one, value in values if isinstance(one, (Scalar, Arr)) and one != value]
    changed = {memory(variable) for variable, _ in pairs}
    copied = []
    for variable, value in pairs:
        rest = changed - {memory(variable)}
        if isinstance(value, Arr) and rest & memory_of(t, value):
            value = t.copy(value)
        elif isinstance(value, Scalar) and rest.intersection(re.findall(r"\w+", value.c)):
            value = t.variable(value, "next")
        copied.append((variable, value))
    for variable, value in copied:
        if isinstance(variable, Arr):
            t.store_all(variable, value)
        else:
            t.emit(f"{variable.c} = {scalar(value).c};")


def memory(variable: Scalar | Arr) -> str:
    """Return the C name of a variable or an array."""
    return variable.c if isinstance(variable, Scalar) else variable.base


def _mutable(t: Looping, planned: Value, first: Value | None, name: str) -> Value:
    """Declare variables for what a loop changes of ``planned``, and assign ``first`` to them."""
    firsts = leaves(first) if first is not None else []
    parts: list[Value] = []
    for position, part in enumerate(leaves(planned)):
        begin = firsts[position] if position < len(firsts) else None
        if isinstance(part, Scalar) and part.c.startswith(HANDED_ON):
            part = t.declare(part.kind, name)
            if isinstance(begin, Scalar):
                t.emit(f"{part.c} = {begin.c};")
        elif isinstance(part, Arr) and part.base.startswith(HANDED_ON):
            part = t.fresh(part.kind, part.shape, name)
            t.handed_on.add(part.base)
            if isinstance(begin, Arr):
                t.store_all(part, begin)
        parts.append(part)
    return rebuilt(planned, parts)


def statements_of(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a loop's body, without nested loops."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.If):
            yield from statements_of([*statement.body, *statement.orelse])


def assigned_in(statements: Sequence[ast.stmt]) -> set[str]:
    """Return the names that statements assign."""
    nodes = (entry for statement in statements for entry in ast.walk(statement))
    return {entry.id for entry in nodes if isinstance(entry, ast.Name) and isinstance(entry.ctx, ast.Store)}


def changing(value: Value, name: str) -> Value:
    """Return ``value`` with numbers that a pass of a loop may change."""
    parts = [
        replace(part, c=f"{HANDED_ON}{name}_{position}", const=None) if isinstance(part, Scalar) else part
        for position, part in enumerate(leaves(value))
    ]
    return rebuilt(value, parts)


def own_arrays(value: Value, name: str) -> Value:
    """Return ``value`` with arrays of its own in place of the memory of a pass."""
    parts: list[Value] = []
    for position, part in enumerate(leaves(value)):
        if isinstance(part, Arr):
            part = Arr(
                part.kind, f"{HANDED_ON}{name}_{position}", part.shape, row_strides(part.shape), temporary=True
            )
        parts.append(part)
    return rebuilt(value, parts)


def merged(name: str, planned: Value | None, ends: list[Value]) -> Value | None:
    """Return the planned value of a name, made wide enough for its values at the ends of a pass."""
    if planned is None:
        if not ends:
            return None
        planned = own_arrays(changing(ends[0], name), name)
    parts = leaves(planned)
    for end in ends:
        rest = leaves(end)
        if len(rest) != len(parts):
            return Plain(Mismatch(name))
        pairs = enumerate(zip(parts, rest, strict=True))
        parts = [wider(mine, other, f"{HANDED_ON}{name}_{at}") for at, (mine, other) in pairs]
    if any(isinstance(part, Plain) and isinstance(part.value, Mismatch) for part in parts):
        return Plain(Mismatch(name))
    return rebuilt(planned, parts)


def wider(one: Value, other: Value, c: str) -> Value:
    """Return a value that can hold either of two numbers or arrays."""
    if isinstance(one, Scalar) and isinstance(other, Scalar):
        return Scalar(kind_of_both(one, other), c)
    if one == other:
        return one
    if isinstance(one, Arr) and isinstance(other, Arr) and (one.kind, one.shape) == (other.kind, other.shape):
        return Arr(one.kind, c, one.shape, row_strides(one.shape), temporary=True)
    return Plain(Mismatch(c))


def settled(planned: Value, first: Value | None, ends: list[Value]) -> Value:
    """Return the planned value with the first values of all numbers that no pass changes."""
    firsts = leaves(first) if first is not None else []
    parts = leaves(planned)
    for at, part in enumerate(parts):
        same = all(len(leaves(end)) > at and leaves(end)[at] == part for end in ends)
        if isinstance(part, Scalar) and same and at < len(firsts):
            parts[at] = firsts[at]
    return rebuilt(planned, parts)
