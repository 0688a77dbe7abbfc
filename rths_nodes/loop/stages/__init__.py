# SPDX-License-Identifier: Apache-2.0
"""Stages of the loop, which do not depend on ROS: numerical, command, rig and monitor stage (doc/architecture.md).

One process runs all stages, or each node runs one stage. All hosts run the stages in the order of
``loop/embedded.py``, so results are bit-identical.
"""
