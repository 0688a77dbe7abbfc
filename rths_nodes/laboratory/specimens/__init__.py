# SPDX-License-Identifier: Apache-2.0
"""Specimens: experimental substructures of one axis. Each specimen computes its force and the rates of its states.

The actuator integrates the inner states, so that a stiff actuator and its specimen are solved together.
"""

TABLE = {
    "kelvin_voigt": ".viscous:KelvinVoigt",
    "maxwell_damper": ".viscous:MaxwellDamper",
    "magnetorheological_damper": ".magnetorheological_damper:MagnetorheologicalDamper",
    "relief_valve_damper": ".viscous:ReliefValveDamper",
    "softening_elastomeric": ".hysteretic:SofteningElastomeric",
    "slipping_elastomeric": ".hysteretic:SlippingElastomeric",
    "elastoplastic_absorber": ".hysteretic:ElastoplasticAbsorber",
    "degrading_column": ".hysteretic:DegradingColumn",
    "computed_spring": ".viscous:ComputedSpring",
    "parallel": ".composed:Parallel",
    "with_mass": ".composed:WithMass",
    "with_backlash": ".composed:WithBacklash",
}
