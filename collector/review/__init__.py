"""Review: two sets of runs of the same cases, before and after a change, for the place where code is reviewed."""
