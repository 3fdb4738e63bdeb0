"""Sessions: the cases of a suite run after run, what is observed beside each run, its record, and comparisons of paired runs."""
