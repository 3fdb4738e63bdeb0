"""Classifiers, recognised by one row of scores and by the file's name or metadata.

They have no decoder.
"""

import re
from collections.abc import Sequence

from edgemeter.agent.vision.decoders import Shape
from edgemeter.agent.vision.decoders.family import Family, Pictures, Recognition, UnknownModel

_NAMES = re.compile(
    r"mobilenet|resne[xt]|efficientnet|squeezenet|shufflenet|densenet|inception"
    r"|googlenet|vgg|alexnet|convnext|regnet|mnasnet|ghostnet|mobilevit|deit|vit_|swin"
)
_NO_NAMES = re.compile(r"ssd|rcnn|detr|yolo|seg|pose|deeplab|feature|embed")
# With or without a background.
_IMAGENET = (1000, 1001)
# Fine-tuning and MLPerf Tiny shrink whole photographs by averaging before they train; ImageNet's
# evaluation crops. The reference model of visual wake words classifies 58 of 72 COCO photographs
# correctly this way, 56 cropped and 49 shrunk without smoothing.
_SHRUNK = (
    "photographs are shrunk whole and smoothly, the usual for a TensorFlow classifier of other "
    "classes than ImageNet's; set input.resize"
)


class Classifier(Family):
    """Recognises classifiers and says how their photographs are prepared."""

    TASK = "classification"

    @classmethod
    def recognise(cls, facts: UnknownModel) -> Recognition | None:
        """Return a class for each score, if something confirms that they are scores.

        Labels, ImageNet's number of classes, the name or the metadata can confirm it.
        """
        labels = len(facts.labels)
        is_called_so = facts.task == cls.TASK or (
            _NAMES.search(facts.name.lower()) and not _NO_NAMES.search(facts.name.lower())
        )
        if not facts.outputs and is_called_so:
            return Recognition(
                labels or _IMAGENET[0], facts.unnamed(_IMAGENET[0], "those of ImageNet")
            )
        classes = _scores(facts.shapes)
        if classes in (*_IMAGENET, labels) and classes:
            return Recognition(classes)
        if not classes or not is_called_so or labels:
            return None
        doubt = (
            f"its {classes} values are scores of classes that it does not name; set `task`, "
            "output.classes and output.labels"
        )
        return Recognition(classes, (doubt,))

    @classmethod
    def pictures(cls, facts: UnknownModel) -> Pictures:
        """Return how pictures are fitted: a crop, or smooth shrinking for own classes.

        ImageNet's evaluation and Ultralytics crop; TensorFlow's trainers shrink smoothly.
        """
        side = facts.size[0] if facts.size else 224
        if facts.task == cls.TASK:
            return Pictures("centre-crop", crop_ratio=1.0, side=224)
        is_channels_last = any(info.shape[-1:] == (3,) for info in facts.inputs)
        if is_channels_last and _scores(facts.shapes) not in _IMAGENET:
            return Pictures("stretch-smooth", mean=None, side=224, doubt=_SHRUNK)
        # EfficientNet-Lite crops a margin of 16 pixels at any size.
        is_lite = re.search(r"efficientnet[-_]?lite", facts.name.lower())
        return Pictures(
            "centre-crop", mean=None, crop_ratio=side / (side + 32) if is_lite else 0.875, side=224
        )


def _scores(shapes: Sequence[Shape]) -> int:
    """Return the number of scores in the only output; 0 for other outputs.

    The output is [1, n], [1, 1, 1, n] or [1, n, 1, 1].
    """
    shape = shapes[0] if len(shapes) == 1 else ()
    is_row = (
        len(shape) >= 2
        and shape[0] in (1, None)
        and None not in shape[1:]
        and sum(size != 1 for size in shape[1:]) == 1
    )
    return max(size or 0 for size in shape) if is_row else 0
