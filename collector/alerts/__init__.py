"""Alerts: rules over the watch, the life of an alert, and the channels that it is sent to."""
