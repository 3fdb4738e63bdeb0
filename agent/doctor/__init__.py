"""The examination of a device: its hardware and software, its problems, and how to solve them."""
