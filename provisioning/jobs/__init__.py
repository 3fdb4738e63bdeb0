"""Jobs on the server: packing orders, scheduling them, and bringing them to the devices."""
