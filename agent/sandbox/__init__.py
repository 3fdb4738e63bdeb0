"""The sandbox of processes that open models, pictures and sounds of others, and the code of the user's that they run."""
