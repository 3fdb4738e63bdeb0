"""The trend: the runs of a series day by day, the changes in it, and what people noted about it."""
