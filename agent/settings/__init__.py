"""Settings: where each value comes from, the samples of every file, and all mistakes of a file at once."""
