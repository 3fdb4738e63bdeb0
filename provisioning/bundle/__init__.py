"""Bundles: all that a device needs to run a release of the agent, in one signed file, installed with no network."""
