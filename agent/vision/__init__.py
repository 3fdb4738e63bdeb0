"""Photographs to tensors, and tensors to boxes."""
