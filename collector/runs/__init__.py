"""The sources of runs: ledgers and documents; selections of runs, and the cases that they belong to."""
