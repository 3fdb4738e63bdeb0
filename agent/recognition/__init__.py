"""What a model file is: its card, or what its shapes and metadata tell."""
