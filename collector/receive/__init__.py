"""From the broker to the ledger: receive, check, commit, confirm."""
