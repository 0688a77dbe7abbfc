"""Kernels: plain and compiled text give the same bits, and nothing stands in one that would not."""
