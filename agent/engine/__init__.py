"""One run inside its own process, and the messages to and from that process.

It loads, warms up, times queries, checks outputs and scores.
"""
