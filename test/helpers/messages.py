# SPDX-License-Identifier: Apache-2.0
"""Comparison of messages by the parts that matter: paths, values with units, bounds and known names.

The sentence around them may change freely. Texts that lead to motion, and reasons of trips, are pinned word for
word in ``test_pinned_words.py`` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rths_nodes.loop.scenario import judgement
from rths_nodes.loop.scenario.schema import Scenario


def naming(*parts: object) -> str:
    """Regular expression for ``match=``: one line that has all ``parts``, in any order, each as a whole token.

    ``1.2`` is not in ``11.2``, ``1.25`` or ``-1.2``; ``limits.force`` is in ``axes.a.limits.force`` but not in
    ``limits.force_rate``.
    """
    return "(?m)^" + "".join(f"(?=.*{token(str(part))})" for part in parts)


def token(part: str) -> str:
    """Regular expression of one part."""
    before = r"(?<![\w.+-])" if re.match(r"\.?\d", part) else r"(?<!\w)" if re.match(r"\w", part) else ""
    after = r"(?![./^*-]?\w)" if re.search(r"\w\Z", part) else ""
    return before + re.escape(part) + after


def mentions(messages: str | Iterable[str], *parts: object) -> bool:
    """True if one line of the message, or of one of the messages, has all ``parts``."""
    texts = [messages] if isinstance(messages, str) else messages
    return any(re.search(naming(*parts), text) for text in texts)


def each_mentions(messages: Iterable[str], *rows: Sequence[object]) -> bool:
    """True if there is one message for each row, in that order, and each has the parts of its row."""
    texts = list(messages)
    return len(texts) == len(rows) and all(mentions(text, *row) for text, row in zip(texts, rows, strict=True))


def doubts(scenario: Scenario) -> list[str]:
    """Texts of all cautions for a scenario on a simulator."""
    return [caution.words for caution in judgement.cautions(scenario)]
