"""Faults that are injected on purpose: their kinds, and how the streams of a host suffer them."""
