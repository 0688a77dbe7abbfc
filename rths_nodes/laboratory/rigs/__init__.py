# SPDX-License-Identifier: Apache-2.0
"""Simulated rigs with coupled axes. Each rig contains all actuators and their common specimen."""

TABLE = {
    "axially_loaded_column": ".axially_loaded_column:AxiallyLoadedColumn",
    "coupled_servo_hydraulic": ".coupled_servo_hydraulic:CoupledServoHydraulic",
    "coupled_transfer_functions": ".coupled_transfer_functions:CoupledTransferFunctions",
    "opensees": ".external_specimen:OpenSees",
    "fmu": ".external_specimen:Fmu",
}
