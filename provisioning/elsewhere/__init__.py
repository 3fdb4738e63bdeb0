"""Measure on boards from here, over SSH and without a fleet."""
