"""Jobs: what the fleet's server asks of this device, done once each, however often it is asked."""
