"""The agent daemon: connected for months, it delivers what the outbox holds and lets its handlers serve the fleet's server."""
