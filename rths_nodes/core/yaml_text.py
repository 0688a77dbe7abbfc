"""YAML text <-> plain data, stricter than PyYAML: no key twice, ``7.6e6`` is a number."""

from __future__ import annotations

import re
from typing import Any

import yaml

from rths_nodes.core.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML has it, but 7.6e6 is a number and a key that stands twice is refused."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"),
    list("-+0123456789."),
)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":  # <<: *anchor, whose keys may be overridden
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise ConfigError(f"line {key_node.start_mark.line + 1}: the key {key!r} must be text")
        if key in seen:
            raise ConfigError(f"line {key_node.start_mark.line + 1}: the key {key!r} stands twice")
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def parse(source: str, origin: str) -> Any:
    """YAML text -> plain data. Raises ConfigError with ``origin`` and the line."""
    try:
        return yaml.load(source, _Loader)
    except ConfigError as error:
        raise error.within(origin) from None
    except Exception as error:  # PyYAML lets all kinds through, e.g. KeyError for '!!bool x'
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        words = " ".join(str(getattr(error, "problem", None) or error).split())
        raise ConfigError(f"{origin}:{line} not YAML: {words}") from None


def dump(data: Any) -> str:
    """Plain data as YAML; floats by repr, so that reading gives the same bits."""
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True))
