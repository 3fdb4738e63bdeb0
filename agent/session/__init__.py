"""Sessions: the runs of a suite's cases, the observations during each run, and its record."""
