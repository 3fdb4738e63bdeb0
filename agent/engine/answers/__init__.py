"""Right before fast: what the model answered, whether it is the same twice, and as a reference has it."""
