"""The catalogue of models: entries, the user's own, and the models that ship."""
