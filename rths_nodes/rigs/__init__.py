"""Simulated rigs whose axes belong together: all actuators and the specimen between them in one object."""

TABLE = {
    "coupled_servo_hydraulic": "rths_nodes.rigs.coupled_servo_hydraulic:CoupledServoHydraulic",
}
