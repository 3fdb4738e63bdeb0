"""The sources of runs, selections of runs, and the cases that runs belong to.

The sources are ledgers and documents.
"""
