"""The agent's part in updates: check an order, ask the supervisor, report that a release is healthy, and the outcome of the update."""
