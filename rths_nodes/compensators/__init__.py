"""Compensators: what is sent to the actuators so that they are at the target in time.

To add one: a file here with its ``Params`` and its class, a line in this table, a test file.
"""

TABLE = {
    "none": "rths_nodes.compensators.none:NoCompensation",
    "inverse": "rths_nodes.compensators.inverse:Inverse",
    "adaptive_inverse": "rths_nodes.compensators.adaptive_inverse:AdaptiveInverse",
    "polynomial": "rths_nodes.compensators.polynomial:Polynomial",
    "linear_acceleration": "rths_nodes.compensators.linear_acceleration:LinearAcceleration",
    "derivative_feedforward": "rths_nodes.compensators.derivative_feedforward:DerivativeFeedforward",
    "adaptive_time_series": "rths_nodes.compensators.adaptive_time_series:AdaptiveTimeSeries",
    "chain": "rths_nodes.compensators.chain:Chain",
    "discrete_model": "rths_nodes.compensators.discrete_model:DiscreteModel",
    "adaptive": "rths_nodes.compensators.adaptive:Adaptive",
    "model_based": "rths_nodes.compensators.model_based:ModelBased",
}
