"""Specimens: experimental substructures of one axis, in plain floats.

A specimen is a force and the rates of its inner states; whoever moves it (an actuator) integrates them, so
that a stiff actuator and its specimen are solved together.
"""

TABLE = {
    "kelvin_voigt": "rths_nodes.specimens.kelvin_voigt:KelvinVoigt",
    "softening_elastomeric": "rths_nodes.specimens.softening_elastomeric:SofteningElastomeric",
}
