"""On the device: measure, keep, publish."""
