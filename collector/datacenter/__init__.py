"""Edge against datacenter: which side wins in which part, over the ranges of uncertain constants."""
