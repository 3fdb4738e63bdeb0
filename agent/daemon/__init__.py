"""The agent daemon, which is always connected.

It delivers the outbox and serves the fleet's commands by its handlers.
"""
