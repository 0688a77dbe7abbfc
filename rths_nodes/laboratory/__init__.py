"""The part in the laboratory, and its simulators: ports, actuators, specimens, sensors."""
