"""What this machine grants to real time, and for which rates it is good."""
