"""The sandbox of a process that opens models, photographs and recordings of others: Landlock, a seccomp filter, limits; set up before it starts."""
