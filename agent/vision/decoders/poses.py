"""Shared code of pose decoders: keypoints in pixels of the photograph, and the box around them."""

import numpy as np

from edgemeter.agent.vision.decoders import Floats, PhotoFrame


def keypoints_in_photo(points: Floats, frame: PhotoFrame) -> Floats:
    """Return keypoints (x, y in pixels of the input, score) in pixels of the photograph, clipped to it: float32 [n, points, 3]."""
    x = np.clip((points[..., 0] - frame.offset_x) / frame.scale_x, 0, frame.photo_width)
    y = np.clip((points[..., 1] - frame.offset_y) / frame.scale_y, 0, frame.photo_height)
    found: Floats = np.stack([x, y, points[..., 2]], axis=-1).astype(np.float32)
    return found


def box_around(points: Floats) -> Floats:
    """Return the box around keypoints: float32 [n, 4] as x1, y1, x2, y2."""
    if not points.size:
        return np.zeros((len(points), 4), np.float32)
    around: Floats = np.concatenate([points[..., :2].min(axis=1), points[..., :2].max(axis=1)], axis=1)
    return around
