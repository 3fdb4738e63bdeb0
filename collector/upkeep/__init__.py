"""Upkeep of a ledger: copies, packing, and what takes its space."""
