"""The machine of a run, by the kernel's files: board, clocks, load, temperatures, throttling."""
