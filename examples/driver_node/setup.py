# SPDX-License-Identifier: Apache-2.0
"""Build script of an ament_python package, for colcon and pip."""

from setuptools import setup

NAME = "rths_example_driver"
setup(
    name=NAME,
    version="0.1.0",
    description="Driver node that replaces the actuator node of rths_nodes",
    license="Apache-2.0",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
    ],
    entry_points={"console_scripts": [f"driver = {NAME}.driver:main"]},
)
