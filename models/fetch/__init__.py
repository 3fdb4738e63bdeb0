"""From an address to a verified file in the cache."""
