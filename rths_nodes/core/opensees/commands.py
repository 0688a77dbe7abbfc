"""Commands of OpenSees as a scenario has them: each as the words that it takes, in one line."""

from __future__ import annotations

from typing import Any

from rths_nodes.core.strict import as_data


def commands_of(analysis: Any) -> dict[str, list[Any]]:
    """The words of each command in the section ``analysis``: text, or numbers where they are such."""
    lines = as_data(analysis).items()
    return {name: [_number(word) for word in line.split()] for name, line in lines if line is not None}


def _number(word: str) -> Any:
    """An integer, a float, or the word itself."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word
