"""Arithmetic of the indices, sample by sample: functions of floats, one text for every host and for histories.

    step(constants, state, inputs) -> state, outputs

Constants and states are unpacked in the first line, and a plain tuple in the order of ``State`` comes back.
Nothing raises here, and every sum runs from left to right, so that its bits are defined.
"""
