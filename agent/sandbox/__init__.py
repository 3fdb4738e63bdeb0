"""The sandbox of a process that opens models, photographs and recordings of others: Landlock, a filter of system calls, limits."""
