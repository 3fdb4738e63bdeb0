"""How good a language model's answers are: exact match of short texts, numbers and choices."""
