"""From the broker to the ledger: the session, the checks, the receipts, and what Prometheus reads."""
