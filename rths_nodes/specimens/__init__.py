"""Specimens: experimental substructures of one axis, in plain floats.

A specimen is a force and the rates of its inner states; whoever moves it (an actuator) integrates them, so
that a stiff actuator and its specimen are solved together. A specimen whose force is computed, so that nothing
stands against the actuator, has the class attribute ``felt = False``; without it, its force is felt.
"""

TABLE = {
    "kelvin_voigt": "rths_nodes.specimens.kelvin_voigt:KelvinVoigt",
    "maxwell_damper": "rths_nodes.specimens.maxwell_damper:MaxwellDamper",
    "magnetorheological_damper": "rths_nodes.specimens.magnetorheological_damper:MagnetorheologicalDamper",
    "relief_valve_damper": "rths_nodes.specimens.relief_valve_damper:ReliefValveDamper",
    "softening_elastomeric": "rths_nodes.specimens.softening_elastomeric:SofteningElastomeric",
    "slipping_elastomeric": "rths_nodes.specimens.slipping_elastomeric:SlippingElastomeric",
    "elastoplastic_absorber": "rths_nodes.specimens.elastoplastic_absorber:ElastoplasticAbsorber",
    "degrading_column": "rths_nodes.specimens.degrading_column:DegradingColumn",
    "computed_spring": "rths_nodes.specimens.computed_spring:ComputedSpring",
    "parallel": "rths_nodes.specimens.parallel:Parallel",
}
