"""From an address or a bundle to a verified file in the cache."""
