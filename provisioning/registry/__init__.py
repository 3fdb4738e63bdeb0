"""What the fleet's server knows, in one SQLite file: commands write what is wanted, the service acts on it and notes what came of it."""
