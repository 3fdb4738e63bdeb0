"""The sandbox of processes that open other people's models, pictures and sounds, and run the user's code."""
