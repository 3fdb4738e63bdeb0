"""The normalisation of a model without a card.

It follows from the model's family, quantisation, metadata or framework.
"""

import re
from dataclasses import dataclass, replace

import numpy as np

from edgemeter.agent.recognition.metadata import SelfDescription
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision.decoders.family import Pictures, Triple

# An input quantised for normalised pixels keeps at least this many of the 256 pixel values
# distinct.
_FEWEST_STEPS = 64
_SETTLED_BY = "a wrong guess costs accuracy; set input.mean and input.sd"


@dataclass(frozen=True, slots=True)
class Normalisation:
    """A normalisation: real = (pixel - mean) / sd, for pixels 0..255.

    `mean` and `sd` are in the input's order of colours; `doubt` states the assumption made, or
    None.
    """

    mean: Triple
    sd: Triple
    doubt: str | None = None


_TENSORFLOW = Normalisation(
    (127.5,) * 3, (127.5,) * 3, f"pixels become -1..1, the usual for TensorFlow: {_SETTLED_BY}"
)
# Source: torchvision's models.
_IMAGENET = Normalisation(
    (123.675, 116.28, 103.53),
    (58.395, 57.12, 57.375),
    f"ImageNet's mean and sd, the usual for PyTorch: {_SETTLED_BY}",
)
# Source: tensorflow/tpu `models/official/efficientnet/lite/efficientnet_lite_builder.py`.
_EFFICIENTNET_LITE = Normalisation(
    (127.0,) * 3, (128.0,) * 3, f"(pixel - 127) / 128, EfficientNet-Lite's: {_SETTLED_BY}"
)
# Source: Keras `applications/efficientnet.py`, whose graph holds the rescaling.
_KERAS_EFFICIENTNET = Normalisation(
    (0.0,) * 3, (1.0,) * 3, f"pixels 0..255, Keras's for EfficientNet: {_SETTLED_BY}"
)


def find_normalisation(
    info: TensorInfo | None,
    pictures: Pictures,
    description: SelfDescription,
    name: str,
    *,
    is_classifier: bool,
) -> Normalisation:
    """Return the normalisation for the input `info`; `name` shows the framework.

    `info` is None if the file declares no input, which is then taken as float32.
    """
    if pictures.mean is not None:
        trained = Normalisation(pictures.mean, pictures.sd, pictures.doubt)
        if info is None or _can_hold(info, trained):
            return trained
        in_graph = _quantised_normalisation(info)
        doubt = (
            f"the input's quantisation (scale {info.scale or 1:g}) is not that of this family's "
            f"values, so it takes pixels; {_SETTLED_BY}"
        )
        return in_graph if in_graph.doubt else replace(in_graph, doubt=doubt)
    if info is not None and np.dtype(info.dtype).kind in "iu":
        return _quantised_normalisation(info)
    if description.mean is not None and description.sd is not None:
        return Normalisation(description.mean, description.sd)
    return _usual(info, name.lower(), is_classifier=is_classifier)


def _usual(info: TensorInfo | None, name: str, *, is_classifier: bool) -> Normalisation:
    if re.search(r"efficientnet[-_]?lite", name):
        return _EFFICIENTNET_LITE
    # Channels last means TensorFlow, in any format.
    if name.endswith(".tflite") or (info is not None and info.shape[-1] == 3):
        return _KERAS_EFFICIENTNET if "efficientnet" in name and is_classifier else _TENSORFLOW
    return _IMAGENET


def _can_hold(info: TensorInfo, trained: Normalisation) -> bool:
    """Return whether an integer input has room for pixels normalised this way.

    If it has not, the graph itself normalises.
    """
    if np.dtype(info.dtype).kind not in "iu":
        return True
    bounds = np.iinfo(np.dtype(info.dtype))
    first, last = (
        (pixel - trained.mean[0]) / trained.sd[0] / (info.scale or 1.0) + (info.zero_point or 0)
        for pixel in (0, 255)
    )
    inside = min(last, bounds.max) - max(first, bounds.min)
    return inside >= (last - first) / 2 and last - first >= _FEWEST_STEPS


def _quantised_normalisation(info: TensorInfo) -> Normalisation:
    """Return the normalisation of quantised models, whose quantised value is the pixel itself.

    For int8 it is the pixel minus 128.
    """
    kind = np.dtype(info.dtype)
    # Wider integers hold a pixel without a shift.
    first = float(np.iinfo(kind).min) if kind.itemsize == 1 else 0.0
    if info.scale is None:
        form = "as they are" if first == 0 else f"less {-first:g}"
        return Normalisation(
            (-first, -first, -first),
            (1.0,) * 3,
            f"the integer input takes pixels {form}: {_SETTLED_BY}",
        )
    mean, sd = float((info.zero_point or 0) - first), 1 / info.scale
    return Normalisation((mean, mean, mean), (sd, sd, sd))
