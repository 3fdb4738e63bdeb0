"""Releases: everything that a device needs to run a version of the agent.

A release is one signed file, installed without a network.
"""
