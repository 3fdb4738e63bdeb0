"""From an address or a model archive to a verified file in the cache."""
