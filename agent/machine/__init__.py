"""The machine that a run is measured on, by the kernel's files: board, clocks, load, temperatures, throttling."""
