"""From pixel values to a model's real input values, for a model without a card."""

from dataclasses import dataclass

import numpy as np

from edgemeter.agent.recognition.family import Family
from edgemeter.agent.recognition.self_description import SelfDescription, Triple
from edgemeter.agent.runtimes import TensorInfo


@dataclass(frozen=True, slots=True)
class Normalisation:
    """real = (pixel - mean) / sd, pixels 0..255; `doubt` says what was assumed, None where it follows from the model."""

    mean: Triple
    sd: Triple
    doubt: str | None = None


_UNIT = Normalisation((0.0, 0.0, 0.0), (255.0, 255.0, 255.0))
_PIXELS = Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_TENSORFLOW = Normalisation(
    (127.5, 127.5, 127.5), (127.5, 127.5, 127.5), "pixels become -1..1, the usual for TensorFlow: a wrong guess costs accuracy"
)
# Source: torchvision's models.
_IMAGENET = Normalisation(
    (123.675, 116.28, 103.53), (58.395, 57.12, 57.375), "ImageNet's mean and sd, the usual for PyTorch: a wrong guess costs accuracy"
)


def find(info: TensorInfo | None, family: Family, said: SelfDescription, suffix: str) -> Normalisation:
    """Return how pixels become the model's input.

    Args:
        info: the input as the runtime found it, None where the file declares none (float32 then).
        family: the model's family; YOLO's are known by it.
        said: what the file says of itself.
        suffix: of the model file, which tells the framework.
    """
    if family.name in ("yolov5", "yolov8") or said.task == "classify":
        return _UNIT
    if info is not None and np.dtype(info.dtype).kind in "iu":
        return _quantised(info)
    if family.name == "yolox":
        return _PIXELS
    if said.mean is not None and said.sd is not None:
        return Normalisation(said.mean, said.sd)
    return _TENSORFLOW if suffix == ".tflite" else _IMAGENET


def _quantised(info: TensorInfo) -> Normalisation:
    """Return what makes the quantised value the pixel itself (int8: shifted by 128), as quantised models take their pictures."""
    if info.scale is None:
        return Normalisation(_PIXELS.mean, _PIXELS.sd, "the integer input takes pixels as they are")
    mean, sd = float((info.zero_point or 0) - np.iinfo(np.dtype(info.dtype)).min), 1 / info.scale
    return Normalisation((mean, mean, mean), (sd, sd, sd))
