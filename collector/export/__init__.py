"""Runs as tables for other programs."""
