"""Factories of the runtime `python`, one per framework: each has a `make`, whose module's docstring is its data sheet."""
