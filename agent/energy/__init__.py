"""From power readings to energy per inference with its uncertainty, and the calibration of power sensors."""
