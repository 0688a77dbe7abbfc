# SPDX-License-Identifier: Apache-2.0
"""The only folder that may import rclpy, launch, rths_nodes.msg or rths_nodes.srv."""
