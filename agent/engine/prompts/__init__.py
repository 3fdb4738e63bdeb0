"""Prompts of timed queries: synthetic ones, and those of a file."""
