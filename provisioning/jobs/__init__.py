"""Jobs on the server: packing orders, scheduling them, and delivering them to the devices."""
