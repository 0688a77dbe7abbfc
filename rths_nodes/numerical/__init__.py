"""The computed part: ground motion, structure, integrator."""
