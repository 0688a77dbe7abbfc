# SPDX-License-Identifier: Apache-2.0
"""Specimens: experimental substructures of one axis, with a force and the rates of inner states, in floats.

The actuator integrates the inner states, so that a stiff actuator and its specimen are solved together.
"""

TABLE = {
    "kelvin_voigt": ".kelvin_voigt:KelvinVoigt",
    "maxwell_damper": ".maxwell_damper:MaxwellDamper",
    "magnetorheological_damper": ".magnetorheological_damper:MagnetorheologicalDamper",
    "relief_valve_damper": ".relief_valve_damper:ReliefValveDamper",
    "softening_elastomeric": ".softening_elastomeric:SofteningElastomeric",
    "slipping_elastomeric": ".slipping_elastomeric:SlippingElastomeric",
    "elastoplastic_absorber": ".elastoplastic_absorber:ElastoplasticAbsorber",
    "degrading_column": ".degrading_column:DegradingColumn",
    "computed_spring": ".computed_spring:ComputedSpring",
    "parallel": ".composed:Parallel",
    "with_mass": ".composed:WithMass",
    "with_backlash": ".composed:WithBacklash",
}
