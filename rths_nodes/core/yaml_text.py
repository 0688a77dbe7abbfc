# SPDX-License-Identifier: Apache-2.0
"""Conversion between YAML text and plain data, with YAML 1.2 numbers, unique keys and bounded size.

In the core schema of YAML 1.2 (https://yaml.org/spec/1.2.2/, 10.3.2) ``7.6e6`` is a number, while ``1:30``,
``1_000``, ``yes`` and ``2024-01-01`` are text, which a numeric parameter refuses. Ambiguous numbers are refused:
``010`` (8 in YAML 1.1), ``1e-400`` and ``1e400``.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Any

import yaml

from rths_nodes.core.errors import ConfigError, show
from rths_nodes.core.text_files import LARGEST_TEXT, read_text, reason, size_of

MOST_NODES = 200_000
"""Largest number of values, lists and sections, enough for three full matrices of 250 degrees of freedom."""
DEEPEST = 50
LONGEST_NUMBER = 300

_TAG = "tag:yaml.org,2002:"
# tag -> pattern and possible first characters; the first match is used
_PATTERNS = {
    "null": ("~|null|Null|NULL|", ("~", "n", "N", "")),
    "bool": ("true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    "int": ("[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", tuple("-+0123456789")),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN",
        tuple("-+.0123456789"),
    ),
    "merge": ("<<", ("<",)),
}


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, object] = {}  # noqa: RUF012 (as PyYAML declares it)

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self._level = self._nodes = 0
        self._written: dict[int, tuple[int, int, int]] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        alias = self.check_event(yaml.AliasEvent)
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        self._level += 1
        self._nodes += 1
        if self._level > DEEPEST:
            raise _refused(mark, f"the text is nested deeper than {DEEPEST} levels")
        if self._nodes > MOST_NODES:
            raise _refused(mark, f"the text has more than {MOST_NODES} values, lists and sections")
        node = super().compose_node(parent, index)
        self._level -= 1
        if alias and id(node) not in self._written:
            raise _refused(mark, "an alias must not refer to a value that contains it")
        if not alias:
            self._written[id(node)] = self._measured(node, mark)
        return node

    def _measured(self, node: Any, mark: yaml.Mark) -> tuple[int, int, int]:
        if isinstance(node, yaml.ScalarNode):
            return 1, len(node.value), 1
        pairs = isinstance(node, yaml.MappingNode)
        parts = [part for pair in node.value for part in pair] if pairs else node.value
        values, characters, levels = 1, 0, 0
        for part in parts:
            size = self._written[id(part)]
            values, characters, levels = values + size[0], characters + size[1], max(levels, size[2])
        problem = ""
        if values > MOST_NODES:
            problem = f"has more than {MOST_NODES} values, lists and sections"
        elif characters > LARGEST_TEXT:
            problem = f"is longer than {size_of(LARGEST_TEXT)}"
        elif levels >= DEEPEST:
            problem = f"is nested deeper than {DEEPEST} levels"
        if problem:
            raise _refused(mark, f"with expanded aliases, the text {problem}")
        return values, characters, levels + 1


class _Dumper(yaml.SafeDumper): ...


for _kind, (_pattern, _first) in _PATTERNS.items():
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_pattern})$"), list(_first))
    if _kind in ("int", "float"):
        _Dumper.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_pattern})$"), list(_first))


def _refused(mark: yaml.Mark, problem: str) -> ConfigError:
    return ConfigError(f"line {mark.line + 1}: {problem}")


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[object, object]:
    if not isinstance(node, yaml.MappingNode):
        raise _refused(node.start_mark, "not YAML: a tag declares a section here, but the value is not a section")
    seen: set[object] = set()
    for key_node, value_node in node.value:
        if key_node.tag == _TAG + "merge":  # merge key <<: *anchor; the keys of the anchor may be overridden
            loader.construct_object(value_node, deep=True)  # check the keys of the anchor
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise _refused(key_node.start_mark, f"the key {show(key)} must be text")
        if key in seen:
            raise _refused(key_node.start_mark, f"the key {show(key)} appears twice")
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


def _scalar(loader: _Loader, node: yaml.ScalarNode, kind: str) -> str:
    text: str = loader.construct_scalar(node)
    if not re.fullmatch(_PATTERNS[kind][0], text):
        raise _refused(node.start_mark, f"not YAML: {show(text)} is not of the type {kind}")
    return text


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = _scalar(loader, node, "int")
    digits = text.lstrip("-+")
    if len(digits) > LONGEST_NUMBER:
        raise _refused(node.start_mark, f"not YAML: {len(digits)} digits are too many for a whole number")
    if digits[:2] in ("0o", "0x"):
        return int(digits, 0)
    if len(digits) > 1 and digits[0] == "0":
        octal = f" (YAML 1.1 reads {int(text, 8)})" if not set(digits) & set("89") else ""
        remedy = f"Write {int(text)}, or put quotes around the text"
        raise _refused(node.start_mark, f"{text}: a whole number must not begin with 0{octal}. {remedy}")
    return int(text)


def _float(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = _scalar(loader, node, "float")
    if text[-1] in "fFnN":
        return float(text.replace(".", "", 1))
    number = float(text)
    problem = ""
    if not number and re.search("[1-9]", re.split("[eE]", text)[0]):
        problem = "too small for a floating-point number; it would be read as 0"
    elif abs(number) == float("inf"):
        problem = "too large for a floating-point number; it would be read as infinite"
    if problem:
        raise _refused(node.start_mark, f"{show(text)}: {problem}")
    return number


def _null(loader: _Loader, node: yaml.ScalarNode) -> None:
    _scalar(loader, node, "null")


_QUICK: type[_Loader] = _Loader
# PyYAML parses text that libyaml may read differently
_DIFFERENT = re.compile(r"[!?\t\ufeff]|[|>][-+0-9]*#")
if yaml.__with_libyaml__:
    from yaml.cyaml import CParser  # type: ignore[attr-defined]

    class _Quick(_Loader, CParser):
        def __init__(self, source: str) -> None:
            super().__init__(source)
            CParser.__init__(self, source)

        check_event, peek_event = CParser.check_event, CParser.peek_event
        get_event, dispose = CParser.get_event, CParser.dispose

    _QUICK = _Quick

_Loader.yaml_constructors = {
    _TAG + "map": _mapping,
    _TAG + "seq": lambda loader, node: loader.construct_sequence(node, deep=True),
    _TAG + "str": yaml.SafeLoader.construct_yaml_str,
    _TAG + "int": _integer,
    _TAG + "float": _float,
    _TAG + "bool": lambda loader, node: _scalar(loader, node, "bool").lower() == "true",
    _TAG + "null": _null,
    None: yaml.SafeLoader.construct_undefined,
}


def parse(source: str, origin: str) -> Any:
    """Parse YAML text. Raises ConfigError, whose message begins with ``origin``, for invalid text."""
    if len(source) > LARGEST_TEXT:
        raise ConfigError(f"{origin}: the text has {len(source)} characters: must be <= {LARGEST_TEXT}")
    try:
        with suppress(yaml.YAMLError):
            if not _DIFFERENT.search(source):
                return yaml.load(source, _QUICK)
        # after an error PyYAML parses the text again, so that messages do not depend on libyaml
        return yaml.load(source, _Loader)
    except ConfigError as error:
        raise error.within(origin) from None
    except Exception as error:  # PyYAML raises various exceptions, e.g. ValueError for invalid characters
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ConfigError(f"{origin}:{line} not YAML: {problem}") from None


def source_of(path: str | os.PathLike[str], origin: str) -> str:
    """Read a text file. Raises ConfigError, whose message begins with ``origin``, if it is unreadable."""
    try:
        return read_text(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{origin}: cannot be read ({reason(error)})") from None


def number_in(word: str) -> object:
    """Return ``word`` as a number if YAML reads it so, otherwise unchanged. Raises ConfigError if ambiguous."""
    numeric = any(re.fullmatch(_PATTERNS[kind][0], word) for kind in ("int", "float"))
    return parse(word, "number") if numeric else word


def dump(data: object, rows: bool = False) -> str:
    """Return ``data`` as YAML 1.1 and 1.2, with exact floats. ``rows`` puts each list of numbers on one line."""
    flow = None if rows else False
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=flow))
