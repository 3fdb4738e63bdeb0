"""Updates, as the agent sees them: check an order, ask the supervisor, report that a release is healthy, and what came of the update."""
