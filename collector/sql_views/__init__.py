"""Figures of the runs as tables and views in the PostgreSQL that holds the ledger, for SQL and Grafana."""
