"""The agent's part in updates.

It checks an order, asks the supervisor, reports that a release is healthy, and reports the outcome
of the update.
"""
