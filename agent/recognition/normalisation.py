"""From pixel values to a model's real input values, for a model without a card."""

import re
from dataclasses import dataclass, replace

import numpy as np

from edgemeter.agent.recognition import file_name
from edgemeter.agent.recognition.family import Family
from edgemeter.agent.recognition.self_description import SelfDescription, Triple
from edgemeter.agent.runtimes import TensorInfo


@dataclass(frozen=True, slots=True)
class Normalisation:
    """real = (pixel - mean) / sd, pixels 0..255, in the order of the input's colours; `doubt` says what was assumed, else None."""

    mean: Triple
    sd: Triple
    doubt: str | None = None


# Of the 256 values of a pixel, so many at least stay apart in an input that was quantised for them.
_FEWEST_STEPS = 64
_SETTLED_BY = "a wrong guess costs accuracy; input.mean and input.sd say"
_UNIT = Normalisation((0.0, 0.0, 0.0), (255.0, 255.0, 255.0))
_PIXELS = Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_TENSORFLOW = Normalisation((127.5, 127.5, 127.5), (127.5, 127.5, 127.5), f"pixels become -1..1, the usual for TensorFlow: {_SETTLED_BY}")
# Source: torchvision's models.
_IMAGENET_MEAN, _IMAGENET_SD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
_IMAGENET = Normalisation(_IMAGENET_MEAN, _IMAGENET_SD, f"ImageNet's mean and sd, the usual for PyTorch: {_SETTLED_BY}")
# Source: tensorflow/tpu `models/official/efficientnet/lite/efficientnet_lite_builder.py`.
_EFFICIENTNET_LITE = Normalisation((127.0, 127.0, 127.0), (128.0, 128.0, 128.0), f"(pixel - 127) / 128, EfficientNet-Lite's: {_SETTLED_BY}")
# Source: Keras `applications/efficientnet.py`, whose graph holds the rescaling.
_KERAS_EFFICIENTNET = Normalisation(_PIXELS.mean, _PIXELS.sd, f"pixels 0..255, Keras's for EfficientNet: {_SETTLED_BY}")
# The blue channel comes first. Source: RangiLyu/nanodet `config/nanodet-plus-m_416.yml`.
_NANODET = Normalisation(_IMAGENET_MEAN[::-1], _IMAGENET_SD[::-1])
# Source: RangiLyu/nanodet `config/legacy_v0.x_configs/EfficientNet-Lite/`.
_NANODET_ON_LITE = Normalisation((127.0, 127.0, 127.0), (128.0, 128.0, 128.0))
_ON_LITE = re.compile(r"efficient(net)?[-_]?lite")


def find(info: TensorInfo | None, family: Family, said: SelfDescription, name: str) -> Normalisation:
    """Return how pixels become the model's input.

    Args:
        info: the input as the runtime found it, None where the file declares none (float32 then).
        family: the model's family; a detector's training is known by it.
        said: what the file says of itself.
        name: of the model file, which tells the framework.
    """
    trained = _of_family(family, said, name)
    if trained is None and said.task == "classify":
        trained = _UNIT
    if trained is not None:
        return trained if info is None or _can_hold(info, trained) else _in_the_graph(info)
    if info is not None and np.dtype(info.dtype).kind in "iu":
        return _quantised(info)
    if said.mean is not None and said.sd is not None:
        return Normalisation(said.mean, said.sd)
    return _usual(info, family, name.lower())


def _usual(info: TensorInfo | None, family: Family, name: str) -> Normalisation:
    if re.search(r"efficientnet[-_]?lite", name):
        return _EFFICIENTNET_LITE
    # A file whose colours are its last axis came from TensorFlow, whatever its format.
    if name.endswith(".tflite") or (info is not None and info.shape[-1] == 3):
        return _KERAS_EFFICIENTNET if "efficientnet" in name and family.name == "classifier" else _TENSORFLOW
    return _IMAGENET


def _of_family(family: Family, said: SelfDescription, name: str) -> Normalisation | None:
    """Return what a family of detectors was trained with, None of a family that says nothing."""
    if family.name in ("yolov5", "yolov5-heads", "yolov8", "yolo26", "torchvision"):
        return _UNIT
    if family.name == "detr":
        if file_name.takes_zero_to_one(name) or said.head == file_name.RT_DETR_HEAD:
            return _UNIT
        return Normalisation(_IMAGENET_MEAN, _IMAGENET_SD, None if file_name.family_in(name) == "detr" else _IMAGENET.doubt)
    return {"nanodet": _NANODET_ON_LITE if _ON_LITE.search(name.lower()) else _NANODET, "yolox": _PIXELS}.get(family.name)


def _can_hold(info: TensorInfo, trained: Normalisation) -> bool:
    """Return whether an integer input has room for pixels normalised so; where it has not, the graph normalises by itself."""
    if np.dtype(info.dtype).kind not in "iu":
        return True
    bounds = np.iinfo(np.dtype(info.dtype))
    first, last = ((pixel - trained.mean[0]) / trained.sd[0] / (info.scale or 1.0) + (info.zero_point or 0) for pixel in (0, 255))
    inside = min(last, bounds.max) - max(first, bounds.min)
    return inside >= (last - first) / 2 and last - first >= _FEWEST_STEPS


def _in_the_graph(info: TensorInfo) -> Normalisation:
    found = _quantised(info)
    doubt = f"the input's quantisation (scale {info.scale or 1:g}) is not that of this family's values, so it takes pixels: {_SETTLED_BY}"
    return found if found.doubt else replace(found, doubt=doubt)


def _quantised(info: TensorInfo) -> Normalisation:
    """Return what makes the quantised value the pixel itself (int8: shifted by 128), as quantised models take their pictures."""
    kind = np.dtype(info.dtype)
    # Wider integers hold a pixel without a shift.
    first = float(np.iinfo(kind).min) if kind.itemsize == 1 else 0.0
    if info.scale is None:
        taken = "as they are" if first == 0 else f"less {-first:g}"
        return Normalisation((-first, -first, -first), _PIXELS.sd, f"the integer input takes pixels {taken}: {_SETTLED_BY}")
    mean, sd = float((info.zero_point or 0) - first), 1 / info.scale
    return Normalisation((mean, mean, mean), (sd, sd, sd))
