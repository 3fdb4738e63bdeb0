"""The device's health: its collection, the `health` message, and when it is sent."""
