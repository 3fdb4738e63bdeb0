"""The roll-up: cases of a large ledger summed up in advance, in a file beside it that may be deleted at any time."""
