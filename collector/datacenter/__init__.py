"""Compare edge with datacenter over the ranges of uncertain constants.

The result is which side wins under which assumptions.
"""
