"""The reference structure: the whole, computed without a split."""
