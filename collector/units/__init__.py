"""Boards of one type beside each other: how far they spread, and which lie apart."""
