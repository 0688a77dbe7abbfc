"""The only folder that may import rclpy, launch or rths_nodes.msg."""
