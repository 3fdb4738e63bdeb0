"""What is measured: the models and scenes that ship, and how they are made."""
