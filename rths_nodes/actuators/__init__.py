"""Simulated actuators of one axis, each built with its specimen, in plain floats."""

TABLE = {
    "pure_delay": "rths_nodes.actuators.pure_delay:PureDelay",
    "first_order": "rths_nodes.actuators.first_order:FirstOrder",
    "second_order": "rths_nodes.actuators.second_order:SecondOrder",
    "transfer_function": "rths_nodes.actuators.transfer_function:TransferFunction",
    "amplitude_dependent": "rths_nodes.actuators.amplitude_dependent:AmplitudeDependent",
    "servo_hydraulic": "rths_nodes.actuators.servo_hydraulic:ServoHydraulic",
}
