"""Identification of loading systems."""
