"""The load generator: simulated devices over a real broker."""
