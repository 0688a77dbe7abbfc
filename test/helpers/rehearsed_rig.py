# SPDX-License-Identifier: Apache-2.0
"""A frame on one axis, whose actuator and specimen, or rig, a test adds."""

from __future__ import annotations

STIFFNESS = 1.0e6
"""N/m, of the specimen."""

SCENARIO = """
version: 1
name: rehearsal
servo_rate: 1024.0
substeps: 8
duration: {duration}
ground_motion: {{type: record, record: elcentro_1940_ns, scale: 1.0}}
structure: {{type: sdof, mass: 40000.0, frequency: 1.2}}
integrator: {{type: cr}}
compensator: {{type: none}}
axes:
  story_1:
    limits: {{stroke: 0.5, velocity: 5.0, force: 1.0e7}}
"""
OWN = "    actuator: {actuator}\n    specimen: {specimen}\n"
"""Behind it, indented as part of the axis."""
