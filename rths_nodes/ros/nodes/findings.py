"""What the user is told of a test by the final numbers of its nodes."""

from __future__ import annotations

from collections.abc import Mapping


def doubts(recording: Mapping[str, Mapping[str, float]]) -> str:
    """What the user is told of a recording with gaps (by topic), silent nodes or an early end; empty: whole."""
    gaps = [f"{count:.0f} in {name}" for name, count in recording.get("gaps", {}).items() if count]
    silent = recording.get("silent", {})
    broken_off = recording.get("broken_off", {})
    words = [f"it broke off at sample {broken_off['sample']:.0f}"] if broken_off else []
    words += [f"gaps: {', '.join(gaps)}"] if gaps else []
    words += [f"no last words of: {', '.join(silent)}"] if silent else []
    return f"the recording may not be complete: {'; '.join(words)}" if words else ""


def unseen(numbers: Mapping[str, float]) -> str:
    """What the user is told of samples at the end that the monitor did not see, by its Summary; empty: none."""
    count = numbers.get("unseen.samples", 0.0)
    return f"the monitor has not seen the last {count:.0f} samples: the indices are without them" if count else ""


def dropped(numbers: Mapping[str, float]) -> str:
    """What the user is told of messages that nodes have dropped, by the ``numbers`` of Summaries; empty: none."""
    foreign: dict[tuple[str, str], float] = {}
    malformed: list[str] = []
    overflow: list[str] = []
    for name, count in numbers.items():
        kind, _, rest = name.partition(".")
        if kind == "foreign":  # the nodes that listen to a topic count the same messages
            _, topic, sender = rest.split(".")
            foreign[topic, sender] = max(count, foreign.get((topic, sender), 0.0))
        elif kind == "malformed":
            malformed.append(f"{count:.0f} by {rest}")
        elif kind == "overflow":
            sender, _, topic = rest.partition(".")
            overflow.append(f"{count:.0f} of {sender} on {topic}")
    words = [f"{count:.0f} of {sender} on {topic}" for (topic, sender), count in sorted(foreign.items())]
    found = [f"foreign messages were dropped: {', '.join(words)}"] if words else []
    if malformed:
        found.append(f"malformed messages were dropped: {', '.join(malformed)}")
    if overflow:
        found.append(f"messages were lost because who hears them stood still: {', '.join(overflow)}")
    return "; ".join(found)
