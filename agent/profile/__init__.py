"""Which operators of a model take the time, by the runtime's own profiler; never mixed with measured latencies."""
