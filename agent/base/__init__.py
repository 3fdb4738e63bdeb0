"""Shared by every package: errors, configuration, MQTT, SQLite, durable files, HTTP, statistics, text.

It imports no other package of the project.
"""
