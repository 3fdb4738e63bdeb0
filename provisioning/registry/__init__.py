"""The registry: what the fleet's server knows, in one SQLite file that every command and the service share."""
