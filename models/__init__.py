"""The models and scenes that ship, and how they are made."""
