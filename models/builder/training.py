"""The shipped detector and its training from nothing: drawn scenes, task-aligned assignment, AdamW, averaged weights; then every format.

Plain 3 x 3 convolutions, two grids, separate branches for where and what. Every operation has an integer kernel in LiteRT and ONNX
Runtime: ReLU and sigmoid only, nearest-neighbour enlargement, no division. Importing this module imports PyTorch.
Source: the assignment is that of TOOD (arXiv:2108.07755): a cell is responsible for an object when score and overlap together are
among the object's best; the score it learns is that overlap.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from edgemeter.agent.base.progress import Tell
from edgemeter.models.builder.drawn_scenes import SIZE_PX, Stream, draw_scene
from edgemeter.models.builder.recipe import MODEL_NAME, STRIDES, Recipe
from edgemeter.models.builder.scene_shapes import CLASSES
from edgemeter.models.convert import litert_precisions, onnx_precisions
from edgemeter.models.convert.converter_output import quiet
from edgemeter.models.convert.torch_program import contiguous, to_litert, to_onnx, to_torchscript

_NECK = 48

# The untrained box branch answers with boxes of this many strides to each side, so that every cell starts with an overlap.
_FIRST_REACH = 1.5

# The untrained class branch answers with this score: nearly all cells are background. Source: Focal Loss, arXiv:1708.02002, 4.1.
_FIRST_SCORE_LOGIT = -4.6


class _Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _convolution(channels, channels)
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's answer, same shape."""
        return functional.relu(x + self.second(self.first(x)))


class _Branch(nn.Sequential):  # type: ignore[misc]
    """From a grid's features to `channels` numbers per cell."""

    def __init__(self, channels: int, first: float) -> None:
        last = nn.Conv2d(_NECK, channels, 1)
        nn.init.normal_(last.weight, std=0.01)
        nn.init.constant_(last.bias, first)
        super().__init__(_convolution(_NECK, _NECK, groups=_NECK), _convolution(_NECK, _NECK, size=1), last)


class Detector(nn.Module):  # type: ignore[misc]
    """Finds the shapes of a scene; about 186,000 parameters, 60 million multiplications per scene."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(
            _convolution(3, 16, stride=2), _convolution(16, 24, stride=2), _Residual(24), _convolution(24, 48, stride=2), _Residual(48)
        )
        self.coarse = nn.Sequential(_convolution(48, 64, stride=2), _Residual(64))
        self.narrow_coarse = _convolution(64, _NECK, size=1)
        self.narrow_fine = _convolution(48, _NECK, size=1)
        self.boxes = nn.ModuleList(_Branch(4, _FIRST_REACH) for _ in STRIDES)
        self.scores = nn.ModuleList(_Branch(len(CLASSES), _FIRST_SCORE_LOGIT) for _ in STRIDES)

    def answers(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return edge distances [B, N, 4] (not yet kept positive) and class logits [B, N, C], as training wants them."""
        fine = self.fine(images)
        coarse = self.narrow_coarse(self.coarse(fine))
        fine = self.narrow_fine(fine) + functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        levels = (fine, coarse)
        boxes = [_per_cell(branch(level)) for branch, level in zip(self.boxes, levels, strict=True)]
        scores = [_per_cell(branch(level)) for branch, level in zip(self.scores, levels, strict=True)]
        return torch.cat(boxes, 1), torch.cat(scores, 1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes [B, N, 4], distances in strides, >= 0, and scores [B, N, C], 0..1, of images float32 [B, 3, S, S], RGB, 0..1."""
        boxes, logits = self.answers(images)
        return functional.relu(boxes), torch.sigmoid(logits)


def cells() -> tuple[Tensor, Tensor]:
    """Return all cells' centres, float32 [N, 2] as x, y in pixels, and their strides, float32 [N, 1], in the order of the outputs."""
    centres, strides = [], []
    for stride in STRIDES:
        side = (torch.arange(SIZE_PX // stride) + 0.5) * stride
        rows, columns = torch.meshgrid(side, side, indexing="ij")
        centres.append(torch.stack([columns.flatten(), rows.flatten()], 1))
        strides.append(torch.full((side.numel() ** 2, 1), float(stride)))
    return torch.cat(centres), torch.cat(strides)


def parameters(model: nn.Module) -> int:
    """Return how many numbers the model has learned."""
    return sum(parameter.numel() for parameter in model.parameters())


def _per_cell(grid: Tensor) -> Tensor:
    """Return [B, K, H, W] as [B, H x W, K]."""
    return grid.permute(0, 2, 3, 1).flatten(1, 2)


def _convolution(inputs: int, outputs: int, *, stride: int = 1, size: int = 3, groups: int = 1) -> nn.Sequential:
    """Return a convolution, its normalisation and ReLU; the three become one operation on export."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


SCENES = 12_000
BATCH = 32
RATE = 1.2e-2
WEIGHT_DECAY = 5e-4
_WARM_UP_STEPS = 200
_CANDIDATES = 9
_SCORE_POWER = 0.5

# Early on every cell within an object learns, however poor its box; at the end mostly the one with the best box.
_OVERLAP_POWERS = (2.0, 6.0)
_BOX_WEIGHT = 3.0
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class Pool:
    """The training scenes, drawn once: images uint8 [n, 3, S, S]; boxes float32 [n, M, 4]; classes int64 [n, M], -1 where none."""

    images: Tensor
    boxes: Tensor
    classes: Tensor


def draw_pool(seed: int, count: int, tell: Tell) -> Pool:
    """Return `count` scenes of the training stream."""
    scenes = []
    for index in range(count):
        scenes.append(draw_scene(seed, Stream.TRAIN, index))
        tell("drawing scenes", index + 1, count)
    largest = max(len(scene.classes) for scene in scenes)
    boxes = torch.zeros(count, largest, 4)
    classes = torch.full((count, largest), -1, dtype=torch.int64)
    for index, scene in enumerate(scenes):
        boxes[index, : len(scene.boxes)] = torch.from_numpy(scene.boxes)
        classes[index, : len(scene.classes)] = torch.from_numpy(scene.classes)
    images = torch.from_numpy(np.stack([scene.image for scene in scenes])).permute(0, 3, 1, 2).contiguous()
    return Pool(images, boxes, classes)


def train(seed: int, steps: int, tell: Tell, *, threads: int = 1, scenes: int = SCENES) -> Detector:
    """Return a trained detector, in evaluation mode, its weights averaged over the last steps."""
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    pool = draw_pool(seed, min(scenes, steps * BATCH), tell)
    model = Detector().to(memory_format=torch.channels_last).train()
    average: Detector = copy.deepcopy(model).eval()
    optimiser = torch.optim.AdamW(_groups(model), lr=RATE)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = _rate(step, steps)
        images, boxes, classes = _batch(pool, generator)
        distances, logits = model.answers(images)
        value = loss(distances, logits, boxes, classes, step / steps)
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()
        _blend(average, model, step)
        tell(f"training, loss {value.item():.3f}", step + 1, steps)
    return average


def loss(distances: Tensor, logits: Tensor, boxes: Tensor, classes: Tensor, done_ratio: float) -> Tensor:
    """Return the loss of a batch: binary cross-entropy of the scores plus generalised overlap of the boxes.

    Of the model: `distances` in strides and `logits`, float32 [B, N, 4] and [B, N, C]. Of the truth: boxes in pixels, float32 [B, M, 4],
    and classes, int64 [B, M], -1 where there is none. `done_ratio` is how much of the training lies behind, 0..1.
    """
    centres, strides = cells()
    reach = distances * strides
    predicted = torch.cat([centres - reach[..., :2], centres + reach[..., 2:]], -1)
    with torch.no_grad():
        target, weights = assign(predicted, logits.sigmoid(), centres, boxes, classes, done_ratio)
    matched_boxes = boxes.gather(1, target[..., None].expand(-1, -1, 4))
    label = functional.one_hot(classes.gather(1, target).clamp(min=0), len(CLASSES)) * weights[..., None]
    total = weights.sum().clamp(min=1.0)
    overlap = _generalised_overlap(predicted, matched_boxes)
    scores: Tensor = functional.binary_cross_entropy_with_logits(logits, label, reduction="sum")
    return (scores + _BOX_WEIGHT * ((1 - overlap) * weights).sum()) / total


def assign(predicted: Tensor, scores: Tensor, centres: Tensor, boxes: Tensor, classes: Tensor, done_ratio: float) -> tuple[Tensor, Tensor]:
    """Return, for each cell, the object it answers for, int64 [B, N], and how much that counts, float32 [B, N], 0 for background.

    `predicted` are the boxes the cells answer with, float32 [B, N, 4] in pixels, `centres` float32 [N, 2] in pixels; the rest as of `loss`.
    """
    first, last = _OVERLAP_POWERS
    is_real = classes >= 0
    inside = (centres > boxes[:, :, None, :2]).all(-1) & (centres < boxes[:, :, None, 2:]).all(-1) & is_real[..., None]
    overlap = _overlap(boxes[:, :, None], predicted[:, None]).clamp(min=0) * inside
    picked = scores.transpose(1, 2).gather(1, classes.clamp(min=0)[..., None].expand(-1, -1, scores.shape[1]))
    metric = (picked**_SCORE_POWER * overlap ** (first + (last - first) * done_ratio) + _TINY) * inside
    best = metric.topk(_CANDIDATES, -1)
    candidates = torch.zeros_like(metric).scatter(-1, best.indices, 1.0) * inside
    # A cell that several objects claim answers for the one it overlaps most.
    target = (overlap + _TINY).mul(candidates).argmax(1)
    owned = candidates * functional.one_hot(target, boxes.shape[1]).transpose(1, 2)
    metric = metric * owned
    peak = (overlap * owned).amax(-1, keepdim=True)
    weights = (metric / metric.amax(-1, keepdim=True).clamp(min=_TINY) * peak).amax(1)
    return target, weights


def _overlap(a: Tensor, b: Tensor) -> Tensor:
    """Return intersection over union, broadcast over the leading dimensions."""
    size = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    shared = size.prod(-1)
    return shared / (_area(a) + _area(b) - shared).clamp(min=_TINY)


def _generalised_overlap(a: Tensor, b: Tensor) -> Tensor:
    """Return generalised intersection over union, -1..1, which still points the way where boxes do not meet.

    Source: arXiv:1902.09630.
    """
    shared = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1)
    union = (_area(a) + _area(b) - shared).clamp(min=_TINY)
    around = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).clamp(min=0).prod(-1).clamp(min=_TINY)
    return shared / union - (around - union) / around


def _area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(-1)


def _batch(pool: Pool, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return scenes picked at random, turned, mirrored and with their colours exchanged alike: images 0..1, boxes, classes."""
    picked = torch.randint(len(pool.images), (BATCH,), generator=generator)
    turns, is_mirrored = (int(torch.randint(limit, (), generator=generator)) for limit in (4, 2))
    images = pool.images[picked][:, torch.randperm(3, generator=generator)].float() / 255
    boxes = pool.boxes[picked]
    for _ in range(turns):
        images = images.rot90(1, (2, 3))
        boxes = torch.stack([boxes[..., 1], SIZE_PX - boxes[..., 2], boxes[..., 3], SIZE_PX - boxes[..., 0]], -1)
    if is_mirrored:
        images = images.flip(3)
        boxes = torch.stack([SIZE_PX - boxes[..., 2], boxes[..., 1], SIZE_PX - boxes[..., 0], boxes[..., 3]], -1)
    return images.contiguous(memory_format=torch.channels_last), boxes, pool.classes[picked]


def _groups(model: Detector) -> list[dict[str, object]]:
    """Return the optimiser's groups: weights of convolutions decay, biases and normalisation do not."""
    kernels = [p for p in model.parameters() if p.ndim > 1]
    undecayed = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": kernels, "weight_decay": WEIGHT_DECAY}, {"params": undecayed, "weight_decay": 0.0}]


def _rate(step: int, steps: int) -> float:
    """Return the learning rate: a short rise, then half a cosine down to a fiftieth."""
    rise = min(1.0, (step + 1) / _WARM_UP_STEPS)
    return RATE * rise * (0.02 + 0.98 * (1 + math.cos(math.pi * step / steps)) / 2)


def _blend(average: Detector, model: Detector, step: int) -> None:
    """Move the averaged weights a little towards the model's; the memory grows to about a thousand steps."""
    keep = min(0.999, (step + 1) / (step + 10))
    with torch.no_grad():
        for old, new in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
            if old.is_floating_point():
                old.lerp_(new, 1 - keep)
            else:
                old.copy_(new)


DRAWN_CALIBRATION_SCENES = 200
BuildFacts = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class _Step:
    """One file to write: how, and the packages that do it."""

    file: Path
    write: Callable[[Path], object]
    packages: tuple[str, ...]


def fold(model: nn.Module) -> nn.Module:
    """Return a copy whose normalisations are part of the convolutions before them: the same answers, a third of the operations."""
    folded: nn.Module = copy.deepcopy(model).eval()
    for block in folded.modules():
        if isinstance(block, nn.Sequential) and len(block) > 1 and isinstance(block[1], nn.BatchNorm2d):
            block[0] = nn.utils.fusion.fuse_conv_bn_eval(block[0], block[1])
            block[1] = nn.Identity()
    return contiguous(folded)


def train_and_convert(folder: Path, recipe: Recipe, tell: Tell) -> dict[Path, BuildFacts]:
    """Train a detector, write it to `folder` five times, and return how each file was made, for its card."""
    model = fold(train(recipe.seed, recipe.steps, tell, threads=recipe.threads))
    shared: BuildFacts = {
        "by": "make models",
        "seed": recipe.seed,
        "steps": recipe.steps,
        "threads": recipe.threads,
        "parameters": parameters(model),
    }
    steps = _plan(folder, model, recipe.seed)
    facts: dict[Path, BuildFacts] = {}
    for number, step in enumerate(steps, 1):
        tell(f"writing {step.file.name}", number, len(steps))
        with quiet():
            step.write(step.file)
        calibrated: BuildFacts = {"calibration_scenes": DRAWN_CALIBRATION_SCENES} if "int8" in step.file.stem else {}
        facts[step.file] = {**shared, **calibrated, "with": ", ".join(f"{package} {version(package)}" for package in step.packages)}
    return facts


def _plan(folder: Path, model: nn.Module, seed: int) -> list[_Step]:
    """Return the files in the order of writing: an int8 file is made from the fp32 file before it."""
    onnx, litert = folder / f"{MODEL_NAME}_fp32.onnx", folder / f"{MODEL_NAME}_fp32.tflite"
    example = torch.zeros(1, 3, SIZE_PX, SIZE_PX)
    return [
        _Step(folder / f"{MODEL_NAME}_fp32.torchscript", partial(to_torchscript, model, example), ("torch",)),
        _Step(onnx, lambda path: to_onnx(model, example, path, ("boxes", "scores")), ("torch", "onnxscript", "onnx")),
        _Step(
            folder / f"{MODEL_NAME}_int8.onnx",
            lambda path: onnx_precisions.write_int8(onnx, path, lambda: map(_by_channel, calibration_inputs(seed))),
            ("torch", "onnxscript", "onnx", "onnxruntime"),
        ),
        _Step(litert, partial(to_litert, model, example), ("torch", "litert-torch")),
        _Step(
            folder / f"{MODEL_NAME}_int8.tflite",
            lambda path: litert_precisions.write_int8(litert, path, calibration_inputs(seed)),
            ("torch", "litert-torch", "ai-edge-quantizer"),
        ),
    ]


def calibration_inputs(seed: int) -> Iterator[NDArray[np.float32]]:
    """Yield the scenes that ranges are measured on, one after the other: float32 [1, H, W, 3], RGB, 0..1."""
    for index in range(DRAWN_CALIBRATION_SCENES):
        yield draw_scene(seed, Stream.CALIBRATION, index).image.astype(np.float32)[None] / np.float32(255)


def _by_channel(image: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.ascontiguousarray(image.transpose(0, 3, 1, 2))
