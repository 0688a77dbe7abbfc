# SPDX-License-Identifier: Apache-2.0
"""The part in the laboratory, and its simulators: ports, actuators, specimens, sensors."""
