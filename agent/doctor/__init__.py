"""The examination of a device: its hardware and software, its problems, and their remedies."""
