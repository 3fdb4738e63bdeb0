"""The registry: the fleet server's data, in one SQLite file shared by every command and the service."""
