"""Simulated actuators of one axis, each built with its specimen, in plain floats."""

TABLE = {
    "pure_delay": "rths_nodes.actuators.pure_delay:PureDelay",
    "first_order": "rths_nodes.actuators.first_order:FirstOrder",
    "servo_hydraulic": "rths_nodes.actuators.servo_hydraulic:ServoHydraulic",
}
