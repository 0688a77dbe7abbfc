"""Compensators: what is sent to the actuators so that they are at the target in time.

To add one: a file here with its ``Params`` and its class, a line in this table, a test file.
"""

TABLE = {
    "none": "rths_nodes.compensators.none:NoCompensation",
    "inverse": "rths_nodes.compensators.inverse:Inverse",
    "adaptive_inverse": "rths_nodes.compensators.adaptive_inverse:AdaptiveInverse",
}
