"""Streams: recordings and videos that arrive at their own speed, and what is detected in them."""
