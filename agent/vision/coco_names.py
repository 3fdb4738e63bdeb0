"""COCO's classes: what a detector means that was trained on them and does not name its own."""

# By id, 1 to 90; ten ids are not used. Source: COCO's instances_val2017.json, `categories`.
_BY_ID = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light", "fire hydrant", "",
    "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "",
    "backpack", "umbrella", "", "", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard", "sports ball", "kite",
    "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle", "", "wine glass", "cup", "fork", "knife",
    "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair",
    "couch", "potted plant", "bed", "", "dining table", "", "", "toilet", "", "tv", "laptop", "mouse", "remote", "keyboard",
    "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator", "", "book", "clock", "vase", "scissors", "teddy bear",
    "hair drier", "toothbrush",
)  # fmt: skip


def of(classes: int) -> tuple[str, ...]:
    """Return the names of the classes of a detector with so many, "" for one that stands for nothing; none where it is not COCO's.

    80 are COCO's in order, 90 its ids 1 to 90 (TensorFlow), 91 its ids 0 to 90 (DETR).
    """
    if classes == 80:
        return tuple(name for name in _BY_ID if name)
    return {90: _BY_ID, 91: ("", *_BY_ID)}.get(classes, ())
