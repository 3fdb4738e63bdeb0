"""Updates, as the agent sees them.

Check an order, ask the supervisor, report that a new release is healthy, and what came of the update.
"""
