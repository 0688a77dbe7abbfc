# SPDX-License-Identifier: Apache-2.0
"""Delay compensators: compute commands so that the actuators reach the target on time."""

TABLE = {
    "none": ".none:NoCompensation",
    "predefined": ".predefined:Predefined",
    "inverse": ".adaptive:Inverse",
    "adaptive_inverse": ".adaptive:AdaptiveInverse",
    "polynomial": ".polynomial:Polynomial",
    "linear_acceleration": ".adaptive:LinearAcceleration",
    "derivative_feedforward": ".adaptive:DerivativeFeedforward",
    "adaptive_time_series": ".adaptive_time_series:AdaptiveTimeSeries",
    "chain": ".chain:Chain",
    "discrete_model": ".discrete_model:DiscreteModel",
    "adaptive": ".adaptive:Adaptive",
    "model_based": ".model_based:ModelBased",
    "identified_inverse": ".identified_inverse:IdentifiedInverse",
    "linear": ".linear:Linear",
    "pi_lead": ".linear:ProportionalIntegralLead",
    "fmu": ".fmu:Fmu",
}
