"""How good a language model's predictions are: perplexity, multiple choice, short answers, and the gate between two files of one model."""
