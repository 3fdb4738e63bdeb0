"""Installs the agent on running boards over SSH: inspect, copy, install, join, configure, start; a repeated run changes nothing."""
