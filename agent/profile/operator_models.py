"""One-operator models: what is known of each, and the lists of shapes that are measured without a model.

A layer that is cut out of a model keeps its attributes, its weights and the shapes that it has in the model; what it computes on is noise.
Layers alike but for their weights are one model with a count. Activations that a runtime would fuse into a layer are not in it, nor is the
layout that neighbours agree on.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.profile.profiler import ProfileEvent

Precision = Literal["fp32", "int8"]
# The scale of every tensor of an int8 operator of a list: standard normal weights reach 3 standard deviations.
INT8_SCALE = 1 / 42
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True, slots=True)
class OperatorModel:
    """A one-operator model in `file`, and how often its operator occurs in the whole model.

    `flops` is by the operator's definition (`operator_flops`), None where no formula is known here; `bytes` is its inputs, weights and
    outputs, each moved once: the least that memory has to move. `profiled_ratio` is its share of the whole model's time by the runtime's
    profiler, all occurrences together, None for a shape of a list. The roof of int8 is another than that of floats.
    """

    name: str
    kind: str
    file: Path
    count: int
    flops: int | None
    bytes: int
    profiled_ratio: float | None = None
    precision: Precision = "fp32"


class Cutter(Protocol):
    """Cuts operators out of one model; a node is the operator's index in it."""

    def nodes_of(self, events: Sequence[ProfileEvent]) -> Callable[[ProfileEvent], int | None]:
        """Return what finds the node that one of these events of the runtime's profiler is about: None for one of the runtime's own."""

    def signature(self, node: int) -> Hashable:
        """Return what makes two nodes the same operator: kind, attributes, and shapes and types of inputs, fixed or not."""

    def describe(self, node: int) -> str:
        """Return its kind and its name, for a message."""

    def obstacle(self, node: int) -> str | None:
        """Return why it cannot be cut out, None if it can."""

    def write(self, nodes: Sequence[int], ratio: float, folder: Path) -> OperatorModel:
        """Write the first of these equal nodes as a model, which together take this share of the time."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One operator of a list: its kind, and the shapes of input and weights as ONNX has them, or of query, key and value."""

    kind: Literal["Gemm", "Conv", "Attention"]
    first: tuple[int, ...]
    second: tuple[int, ...]
    stride: int = 1
    groups: int = 1
    precision: Precision = "fp32"

    @property
    def name(self) -> str:
        """The name of its model, the same in every format."""
        return operator_name(self.kind, [self.first, self.second], self.stride, self.groups, self.precision)

    @property
    def pad(self) -> int:
        """The pixels that a convolution adds at each edge."""
        return self.second[-1] // 2 if self.kind == "Conv" else 0

    @property
    def output(self) -> tuple[int, ...]:
        """The shape of its output."""
        if self.kind == "Attention":
            return self.first
        if self.kind == "Gemm":
            return self.first[0], self.second[1]
        sizes = [(size + 2 * self.pad - self.second[-1]) // self.stride + 1 for size in self.first[2:]]
        return self.first[0], self.second[0], *sizes

    def weights(self) -> NDArray[np.float32]:
        """Return weights of its second shape, the same on every device."""
        return np.random.default_rng(0).standard_normal(self.second).astype(np.float32)

    def model(self, file: Path) -> OperatorModel:
        """Return its model in `file`."""
        flops = operator_flops(self.kind, [self.first, self.second], self.output)
        tensors = (self.first, *[self.second] * (2 if self.kind == "Attention" else 1), self.output)
        moved = sum(map(math.prod, tensors)) * (1 if self.precision == "int8" else 4)
        return OperatorModel(self.name, self.kind, file, 1, flops, moved, precision=self.precision)


# Layers that many networks share. Sources: ResNet-50 (arXiv 1512.03385, table 1), MobileNetV2 (1801.04381, table 2), BERT-base
# (1810.04805), ViT-S/16 (2012.12877); the products of matrices are of our choice: a vector, a small batch, and two that fill a core.
PEAK = Shape("Gemm", (512, 512), (512, 512))
PEAKS = (PEAK, replace(PEAK, precision="int8"))
STANDARD = (
    Shape("Gemm", (1, 1024), (1024, 1024)),
    Shape("Gemm", (32, 1024), (1024, 1024)),
    PEAK,
    Shape("Gemm", (1024, 1024), (1024, 1024)),
    Shape("Conv", (1, 3, 224, 224), (64, 3, 7, 7), stride=2),
    Shape("Conv", (1, 64, 56, 56), (64, 64, 3, 3)),
    Shape("Conv", (1, 256, 56, 56), (64, 256, 1, 1)),
    Shape("Conv", (1, 512, 7, 7), (512, 512, 3, 3)),
    Shape("Conv", (1, 96, 112, 112), (96, 1, 3, 3), stride=2, groups=96),
    Shape("Conv", (1, 576, 14, 14), (576, 1, 3, 3), groups=576),
    Shape("Attention", (1, 12, 128, 64), (1, 12, 128, 64)),
    Shape("Attention", (1, 6, 197, 64), (1, 6, 197, 64)),
)
# Source: DeepBench, `code/kernels/gemm_problems.h` and `conv_problems.h`, inference_device_set: m, n, k (n is the batch), and side, c, k,
# stride; each once, and without the convolution whose two strides differ. DeepBench runs them in fp32 and int8.
_DEEPBENCH_PRODUCTS = (
    (5124, 700, 2048), (35, 700, 2048), (3072, 1, 1024), (64, 1, 1216), (3072, 1500, 1024), (128, 1500, 1280), (3072, 1500, 128),
    (128, 1, 1024), (3072, 1, 128), (176, 1500, 1408), (4224, 1500, 176), (128, 1, 1408), (4224, 1, 128),
)  # fmt: skip
_DEEPBENCH_CONVOLUTIONS = (
    (112, 64, 64, 1), (56, 64, 256, 1), (56, 256, 64, 1), (56, 256, 128, 2), (28, 128, 512, 1), (28, 512, 128, 1), (28, 512, 256, 2),
    (14, 256, 1024, 1), (28, 512, 1024, 2), (14, 1024, 256, 1), (14, 1024, 512, 2), (7, 512, 2048, 1), (14, 1024, 2048, 2),
    (7, 2048, 512, 1),
)  # fmt: skip
_DEEPBENCH = (
    *(Shape("Gemm", (n, k), (k, m)) for m, n, k in _DEEPBENCH_PRODUCTS),
    *(Shape("Conv", (1, c, side, side), (k, c, 1, 1), stride) for side, c, k, stride in _DEEPBENCH_CONVOLUTIONS),
)
DEEPBENCH = (*PEAKS, *(replace(shape, precision=precision) for precision in PRECISIONS for shape in _DEEPBENCH))


LISTS: Mapping[str, Sequence[Shape]] = {"standard": STANDARD, "deepbench": DEEPBENCH}


def operator_flops(
    kind: str, inputs: Sequence[Sequence[int]], output: Sequence[int], attributes: Mapping[str, Any] | None = None
) -> int | None:
    """Return the floating-point operations of one operator by its definition, a multiplication and an addition each 1; None if unknown.

    Conv: 2 x outputs x (input channels / groups) x kernel. ConvTranspose: 2 x inputs x (output channels / groups) x kernel. Gemm, MatMul:
    2 x outputs x K. Attention: 2 x 2 x heads x queries x keys x depth, without the softmax. Biases are left out. An algorithm that needs
    fewer (Winograd) therefore seems faster than it computes. Source: the operators' definitions in ONNX.
    """
    if kind == "Conv":
        return 2 * math.prod(output) * math.prod(inputs[1][1:])
    if kind == "ConvTranspose":
        return 2 * math.prod(inputs[0]) * math.prod(inputs[1][1:])
    if kind == "Gemm":
        return 2 * math.prod(output) * (inputs[0][0] if (attributes or {}).get("transA") else inputs[0][1])
    if kind == "MatMul":
        return 2 * math.prod(output) * inputs[0][-1]
    if kind == "Attention":
        return 4 * math.prod(inputs[0]) * inputs[1][-2]
    return None


def int8_weights(weights: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return weights in int8, by `INT8_SCALE`."""
    quantised: NDArray[np.int8] = np.clip(np.rint(weights / INT8_SCALE), -127, 127).astype(np.int8)
    return quantised


def operator_name(kind: str, shapes: Sequence[Sequence[int]], stride: int = 1, groups: int = 1, precision: str = "fp32") -> str:
    """Return a name that is the same on every device: `Conv 1x64x56x56 by 64x64x3x3 stride 2`."""
    first, *further = ["x".join(map(str, shape)) for shape in shapes if shape] or [""]
    by = [f"by {further[0]}"] if further else []
    settings = [*([f"stride {stride}"] if stride > 1 else []), *([f"groups {groups}"] if groups > 1 else [])]
    return " ".join([kind, first, *by, *settings, *([precision] if precision != "fp32" else [])])


def operator_file(name: str, suffix: str, folder: Path) -> Path:
    """Return a path in the folder that no operator has yet."""
    file, number = folder / f"{name.replace(' ', '_')}{suffix}", 1
    while file.exists():
        number += 1
        file = folder / f"{name.replace(' ', '_')}_{number}{suffix}"
    return file
