"""Releases: all that a device needs to run a version of the agent, in one signed file, installed with no network."""
