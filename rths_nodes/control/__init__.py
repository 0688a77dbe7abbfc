"""From Target to Command: ramp, setup, compensator, and control of the other inputs of the rig."""
