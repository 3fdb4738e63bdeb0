"""How a sensor is calibrated: load steps, both instruments read, a line through them."""
