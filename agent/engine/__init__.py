"""One run inside its own process: load, warm up, time queries, check outputs, score; and the messages to and from that process."""
