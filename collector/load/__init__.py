"""The load generator: simulated devices that send real records over a real broker, to size a server with."""
