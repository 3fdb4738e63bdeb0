"""Cutting the power of a board that does not come back: switches as plug-ins, and when that is done by itself."""
