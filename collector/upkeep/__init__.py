"""Upkeep of a ledger: how large it is and why, made smaller, copied away and brought back."""
