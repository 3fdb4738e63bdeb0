"""The pictures of the documentation.

They are of one measured pair of models, one simulated fleet, and one simulated board.
"""
