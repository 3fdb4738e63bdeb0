"""The index: every run of a ledger in figures and every case summed up, in one file beside it that may be deleted at any time."""
