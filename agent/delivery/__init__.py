"""The way out of the device: kept in the outbox, sent over MQTT, forgotten on receipt."""
