"""Alerts: rules over the trend, the life of an alert, and the channels for notifications."""
