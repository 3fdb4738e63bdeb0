"""Choose: limits first, then the cases that meet them with certainty, the one to ship, and what to measure where nothing is certain."""
