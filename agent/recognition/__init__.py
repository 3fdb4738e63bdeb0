"""What a model without a card is: read from its tensors' shapes, its metadata and its file name."""
