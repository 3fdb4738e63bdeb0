"""The ledger: a SQLite file of runs, those that this machine measures and those that a collector receives."""
