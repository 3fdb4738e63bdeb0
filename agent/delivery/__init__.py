"""Delivery from device to collector: records are stored in the outbox, sent over MQTT, and deleted on receipt."""
