"""The predictions that are kept with runs: confusion, precision and recall, best threshold, calibration; where those of two runs differ."""
