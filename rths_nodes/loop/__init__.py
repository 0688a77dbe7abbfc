# SPDX-License-Identifier: Apache-2.0
"""Parts of a test that do not depend on ROS: scenario, stages, supervision, injected faults and pacing."""
