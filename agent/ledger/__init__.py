"""The ledger: a store of runs, measured on this machine or received by a collector."""
