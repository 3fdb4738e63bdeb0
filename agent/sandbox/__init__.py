"""The sandbox of a process that opens models, pictures and sounds of others: Landlock or mounts, a filter of system calls, limits."""
