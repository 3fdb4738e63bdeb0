"""The digest: each case of a large ledger summed up, kept beside the ledger, so that a comparison of a million runs decodes none."""
