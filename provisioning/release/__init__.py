"""Releases: everything that a device needs to run a version of the agent, in one signed file, installed without a network."""
