"""Readers of published figures, one file a format; the protocol and their table of names stand in `edgemeter.collector.published`."""
