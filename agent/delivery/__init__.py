"""From the device to the collector: records are kept in the outbox, sent over MQTT, forgotten on receipt."""
