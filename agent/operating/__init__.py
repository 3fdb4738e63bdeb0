"""Sets the power mode, the governor and the highest clocks of a board for a measurement, and puts them back whatever happens."""
