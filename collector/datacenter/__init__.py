"""Edge against datacenter: which side wins in which part, over bands of what nobody knows exactly."""
