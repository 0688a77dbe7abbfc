# SPDX-License-Identifier: Apache-2.0
"""Safety of the rig and judgement of the test: limits, states, safe stop, bridges, heartbeat, indices."""
