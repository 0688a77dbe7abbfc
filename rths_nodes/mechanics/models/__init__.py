"""Models that more than one room needs: a model file, inverses, the coupled rig."""
