"""Installs the agent on running boards over SSH.

The steps are inspect, copy, install, join, configure and start; a repeated run changes nothing.
"""
