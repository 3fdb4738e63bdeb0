"""The fleet's service: one process and one MQTT session, at which several desks do their work."""
