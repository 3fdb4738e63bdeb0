"""Recognition of a model without a card from its tensors' shapes, metadata and file name."""
