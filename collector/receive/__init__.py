"""Receive results from the broker into the ledger.

This is the session, the checks, the receipts, and the metrics that Prometheus reads.
"""
