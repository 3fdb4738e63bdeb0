"""Text: what a model's tokenizer makes of it, and typos."""
