"""The ledger: the collector's own store, a SQLite file."""
