"""The foundation of every package: errors, configuration, MQTT, SQLite, durable files, HTTP, statistics, text.

It imports nothing else of ours.
"""
