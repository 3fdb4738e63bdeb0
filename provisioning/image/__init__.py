"""Prepares a card, an image or a stick for the first boot of a board.

There the board installs the agent and joins the fleet.
"""
