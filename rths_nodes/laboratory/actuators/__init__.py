# SPDX-License-Identifier: Apache-2.0
"""Simulated single-axis actuators, computed with plain floats. Each actuator includes its specimen."""

TABLE = {
    "pure_delay": ".unloaded:PureDelay",
    "first_order": ".unloaded:FirstOrder",
    "second_order": ".unloaded:SecondOrder",
    "transfer_function": ".unloaded:TransferFunction",
    "amplitude_dependent": ".unloaded:AmplitudeDependent",
    "servo_hydraulic": ".servo_hydraulic:ServoHydraulic",
    "servo_hydraulic_linear": ".servo_hydraulic_linear:ServoHydraulicLinear",
}
