"""Measure on other devices from here: those of a fleet, or one board over SSH without a fleet."""
