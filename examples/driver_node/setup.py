# SPDX-License-Identifier: Apache-2.0
"""An ordinary ament_python package: colcon builds it, and pip does."""

from setuptools import setup

NAME = "rths_example_driver"
setup(
    name=NAME,
    version="0.1.0",
    description="A driver node in the place of the actuator node of rths_nodes",
    license="Apache-2.0",
    packages=[NAME],
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
    ],
    entry_points={"console_scripts": [f"driver = {NAME}.driver:main"]},
)
