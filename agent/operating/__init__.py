"""Sets the power mode and the governor of a board for a measurement, and puts them back whatever happens."""
