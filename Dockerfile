# SPDX-License-Identifier: Apache-2.0
# The package in a container, with the ROS 2 of its base image. Untried; doc/ros.md says how to run it.
#   docker build -t rths_nodes .
FROM ros:jazzy-ros-base
SHELL ["/bin/bash", "-c"]
WORKDIR /workspace
COPY . src/rths_nodes
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3-pip \
 && PIP_BREAK_SYSTEM_PACKAGES=1 rosdep install -y --from-paths src/rths_nodes/package.xml --ignore-src \
    --dependency-types buildtool --dependency-types build --dependency-types exec \
 && rm -rf /var/lib/apt/lists/*
RUN source /opt/ros/jazzy/setup.bash && colcon build --packages-select rths_nodes
RUN printf '#!/bin/bash\nsource /opt/ros/jazzy/setup.bash\nsource /workspace/install/setup.bash\nexec "$@"\n' \
    > /entrypoint && chmod +x /entrypoint
WORKDIR /data
ENTRYPOINT ["/entrypoint"]
CMD ["ros2", "run", "rths_nodes", "rths", "--help"]
