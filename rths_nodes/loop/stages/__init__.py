# SPDX-License-Identifier: Apache-2.0
"""Stages of the loop, independent of ROS: numerical, command, rig and monitor stage (table: doc/architecture.md).

One process hosts all stages, or each node hosts one stage. All hosts run the same stages in the same order, with
bit-identical results (reference: ``loop/embedded.py``).
"""
