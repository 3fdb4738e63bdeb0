"""Settings: the source of each value, and the samples and mistakes of every file.

All mistakes in a file are reported at once.
"""
