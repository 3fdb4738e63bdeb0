"""What every package stands on: errors, configuration, MQTT, SQLite, durable files, HTTP, statistics, text.

It imports nothing else of ours.
"""
