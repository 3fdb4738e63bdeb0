"""The registry: the fleet server's data, in one SQLite file.

Every command and the service share it.
"""
