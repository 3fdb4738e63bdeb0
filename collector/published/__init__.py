"""Published figures are other people's, with their source, and are never ranked with own runs.

They are judged by three laws of physics and shown next to own runs.
"""
