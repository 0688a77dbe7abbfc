# SPDX-License-Identifier: Apache-2.0
"""The only folder that may import rclpy, launch, or rths_nodes.msg."""
