"""Sets the power mode and the governor of a board for a measurement.

It restores them whatever happens.
"""
