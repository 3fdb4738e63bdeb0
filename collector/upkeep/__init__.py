"""Upkeep of a ledger: copies, what takes its space, and records that are asked for again."""
