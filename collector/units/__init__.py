"""Boards of one type compared: how far they spread, and which are outliers."""
