# SPDX-License-Identifier: Apache-2.0
"""Laboratory side of a test, real or simulated: ports, actuators, specimens and sensors."""
