"""A model in other formats and precisions, each compared with the file it was made from."""
