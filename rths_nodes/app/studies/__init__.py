"""Studies: many runs and what they come to together."""
