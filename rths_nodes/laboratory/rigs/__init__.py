# SPDX-License-Identifier: Apache-2.0
"""Simulated rigs whose axes belong together: all actuators and the specimen between them in one object."""

TABLE = {
    "axially_loaded_column": ".axially_loaded_column:AxiallyLoadedColumn",
    "coupled_servo_hydraulic": ".coupled_servo_hydraulic:CoupledServoHydraulic",
    "coupled_transfer_functions": ".coupled_transfer_functions:CoupledTransferFunctions",
    "opensees": ".opensees:OpenSees",
    "fmu": ".fmu:Fmu",
}
