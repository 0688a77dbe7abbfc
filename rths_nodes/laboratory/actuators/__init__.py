# SPDX-License-Identifier: Apache-2.0
"""Simulated actuators of one axis, in plain floats. Each actuator includes its specimen."""

TABLE = {
    "pure_delay": ".held_plant:PureDelay",
    "first_order": ".held_plant:FirstOrder",
    "second_order": ".held_plant:SecondOrder",
    "transfer_function": ".held_plant:TransferFunction",
    "amplitude_dependent": ".amplitude_dependent:AmplitudeDependent",
    "servo_hydraulic": ".servo_hydraulic:ServoHydraulic",
    "servo_hydraulic_linear": ".servo_hydraulic_linear:ServoHydraulicLinear",
}
