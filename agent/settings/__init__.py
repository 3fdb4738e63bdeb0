"""Settings: the source of each value, the samples of every file, and all mistakes in a file at once."""
