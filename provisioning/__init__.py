"""Fleets: install the agent on devices, give each an identity, update it, order measurements, and recover from failures."""
