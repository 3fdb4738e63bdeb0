"""Whether to believe a run: the rules, by what they look at, and who applies them."""
