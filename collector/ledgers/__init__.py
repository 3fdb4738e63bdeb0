"""Ledgers of a collector: a SQLite file, or a PostgreSQL database that several collectors share."""
