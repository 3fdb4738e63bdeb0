"""Home Assistant: the fleet's devices as devices there, by MQTT discovery."""
