"""The fleet's service: one process and one MQTT session, shared by its handlers."""
