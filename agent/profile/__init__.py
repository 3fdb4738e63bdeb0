"""Which operators of a model take the time, by the profiler of its runtime."""
