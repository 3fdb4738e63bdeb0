"""Boards of one type compared: which are odd."""
