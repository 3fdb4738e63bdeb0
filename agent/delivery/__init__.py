"""Delivery from device to collector.

Records are stored in the outbox, sent over MQTT, and deleted on receipt.
"""
