"""Recognition of a model without a card from its tensors' shapes, its metadata and its file name."""
