# SPDX-License-Identifier: Apache-2.0
"""Launch file of the mock bench: controller manager with the active receiver.

    ros2 launch rths_controller bench.launch.py
    ros2 launch rths_controller bench.launch.py urdf:=mine.urdf controllers:=mine.yaml

Then run a test: rths run ... --rig bench_rths_controller
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch_ros.actions import Node


def nodes(context):
    arguments = context.launch_configurations
    controllers, urdf = arguments["controllers"], Path(arguments["urdf"]).read_text(encoding="utf-8")
    return [
        Node(
            package="robot_state_publisher",
            executable="robot_state_publisher",
            parameters=[{"robot_description": urdf}],
        ),
        Node(
            package="controller_manager", executable="ros2_control_node", parameters=[controllers], output="screen"
        ),
        Node(
            package="controller_manager",
            executable="spawner",
            arguments=["rths_receiver", "--param-file", controllers],
            output="screen",
        ),
    ]


def generate_launch_description():
    share = Path(get_package_share_directory("rths_controller"))
    return LaunchDescription(
        [
            DeclareLaunchArgument("urdf", default_value=str(share / "urdf" / "bench.urdf")),
            DeclareLaunchArgument("controllers", default_value=str(share / "config" / "controllers.yaml")),
            OpaqueFunction(function=nodes),
        ]
    )
