"""Fleets: install the agent on devices, update it, order measurements, recover from failures.

Each device gets an identity.
"""
