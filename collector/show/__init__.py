"""Comparisons on a terminal, and the report: one HTML file with its charts."""
