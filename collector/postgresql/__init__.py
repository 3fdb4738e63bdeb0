"""The ledger in PostgreSQL, which several collectors and readers share."""
