"""One test without ROS: scenario, stages, supervision, faults, pace."""
