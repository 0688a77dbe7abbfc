"""Stability of the loop of a test, judged before the test."""
