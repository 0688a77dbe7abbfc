"""Calculations and figures before and after a test."""
