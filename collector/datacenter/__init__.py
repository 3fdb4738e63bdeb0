"""Edge against datacenter: which side wins under which assumptions, over the ranges of uncertain constants."""
