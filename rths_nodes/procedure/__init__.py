# SPDX-License-Identifier: Apache-2.0
"""From a cold rig to a test that is over: the states, the operator's acts, and what is written down of them."""
