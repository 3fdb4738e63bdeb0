"""The agent daemon: always connected, it delivers the outbox and serves the fleet's commands by its handlers."""
