"""Sets the power mode and the governor of a board for a measurement, and restores them whatever happens."""
