# SPDX-License-Identifier: Apache-2.0
"""Stages of the loop, independent of ROS. One process hosts all stages, or each node hosts one stage.

With n samples in an integration step, the stages are:

    NumericalStage   ground motion, structure, integrator            Measurement i n -> Target i + 1
    CommandStage     ramp, setup, compensator                        Target, Measurement k -> Command k + 1
    RigStage         port, limits, state of the test, safe stop      Command k -> Measurement k
    MonitorStage     indices, limits of indices                      all messages -> breach, metrics

All hosts run the same stages in the same order, with bit-identical results (reference: ``loop/embedded.py``).
"""
