# SPDX-License-Identifier: Apache-2.0
"""Messages that only the recorder wants: they are packed and published in bursts, when the loop does not wait."""

from __future__ import annotations

from collections.abc import Callable

from rths_nodes.ros.transport.topics import NodeTopics

BURST = 32
"""Messages that are sent together."""

Pack = Callable[..., bytes]
Sample = Callable[[], object]


class DeferredSends:
    """Messages on ``topics`` that are kept back, at most ``BURST`` of them.

    In lockstep a burst wakes the recorder once instead of thirty times. In real time the executor sends it as soon
    as the loop has its Command.
    """

    def __init__(self, topics: NodeTopics) -> None:
        self._topics = topics
        self._newest: tuple[str, Pack, Sample, tuple[object, ...]] | None = None
        self._burst: list[tuple[str, Pack, tuple[object, ...]]] = []

    def put(self, topic: str, pack: Pack, sample: Sample, *rest: object) -> None:
        """Keep a message back: ``pack(sample(), *rest)``.

        ``sample`` is asked when the message is sent, or before what it tells changes (:meth:`collect`); where it
        gives None there is no message.
        """
        if self._newest is not None:
            self.collect()
        if len(self._burst) >= BURST:
            self.send()
        self._newest = (topic, pack, sample, rest)

    def collect(self) -> None:
        """The sample is over: keep what its message is made of."""
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
        """Forget what was kept back: the test is over."""
        self._newest = None
        self._burst.clear()
