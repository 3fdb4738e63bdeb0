"""Prepares a card, an image or a stick, so that a board installs the agent and joins the fleet at its first boot."""
