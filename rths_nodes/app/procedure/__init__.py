"""A test from the cold rig to its report: what an operator answers, acts and sees, and who walks the ladder."""
