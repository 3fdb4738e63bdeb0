"""The demo: everything from measurement to report on one machine, and a simulated fleet."""
