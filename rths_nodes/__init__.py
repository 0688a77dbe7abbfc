"""Real-time hybrid simulation on ROS 2."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)  # a checkout finds the built rths_nodes.msg

__version__ = "0.1.0"
