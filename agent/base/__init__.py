"""This package is shared by all others; it imports no other package of the project.

It has errors, configuration, MQTT, SQLite, durable files, HTTP, statistics and text.
"""
