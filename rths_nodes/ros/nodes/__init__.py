"""The nodes of a rig, and the parts that they are made of."""
