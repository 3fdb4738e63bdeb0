"""A run as one file, from which every statistic can be recomputed."""
