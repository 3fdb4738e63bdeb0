"""Photographs to tensors, tensors to boxes, boxes to COCO AP."""
