"""The sandbox of processes that open foreign files, and run the user's code.

The files are other people's models, pictures and sounds.
"""
