# SPDX-License-Identifier: Apache-2.0
"""Messages for the recorder only, packed and published in bursts when the loop does not wait."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.ros.transport.topics import NodeTopics

BURST = 32
"""Messages per burst."""

Pack = Callable[..., bytes]
Sample = Callable[[], object]


class DeferredSends:
    """Deferred messages on ``topics``, at most ``BURST``.

    In lockstep a burst wakes the recorder once instead of thirty times. In real time the executor sends it as soon
    as the loop has its Command.
    """

    def __init__(self, topics: NodeTopics) -> None:
        self._topics = topics
        self._newest: tuple[str, Pack, Sample, tuple[object, ...]] | None = None
        self._burst: list[tuple[str, Pack, tuple[object, ...]]] = []

    def put(self, topic: str, pack: Pack, sample: Sample, *rest: object) -> None:
        """Queue the message ``pack(sample(), *rest)``.

        ``sample()`` is evaluated when the message is sent, or before its value changes (:meth:`collect`); None: no
        message.
        """
        if self._newest is not None:
            self.collect()
        if len(self._burst) >= BURST:
            self.send()
        self._newest = (topic, pack, sample, rest)

    def collect(self) -> None:
        """Evaluate the sample of the newest message before it changes."""
        if self._newest is not None:
            topic, pack, sample, rest = self._newest
            self._newest = None
            found = sample()
            if found is not None:
                self._burst.append((topic, pack, (found, *rest)))

    def send(self) -> None:
        self.collect()
        for topic, pack, sample in self._burst:
            self._topics.senders[topic](pack(*sample))
        self._burst.clear()
        self._topics.publish_held()

    def clear(self) -> None:
        """Discard queued messages."""
        self._newest = None
        self._burst.clear()
