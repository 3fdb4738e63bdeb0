"""Updates, as the agent sees them: check an order, ask the supervisor, say that a new release is healthy, report what came of it."""
