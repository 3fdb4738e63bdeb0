"""What travels between machines and lies in stored files: records, messages, orders, suites. It imports nothing of ours but `base`."""
