"""A model in other formats and precisions, each compared with its source file."""
