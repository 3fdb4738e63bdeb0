"""The trend: the runs of a series day by day, its changes, and annotations."""
