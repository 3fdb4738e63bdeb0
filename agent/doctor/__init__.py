"""What is here, what is wrong, and what to do about it."""
