"""From power readings to energy per inference with its uncertainty."""
