"""Jobs: what the fleet's server orders of this device, carried out once each, however often it is ordered."""
