"""What the programs share that run many tests of one scenario at a time, in arrays with the runs last."""
