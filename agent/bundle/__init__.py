"""A run as one file, from which every statistic can be recomputed.

docs/tasks/compare.md describes it.
"""
