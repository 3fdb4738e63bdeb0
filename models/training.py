"""Training of the detector from nothing: drawn scenes, task-aligned assignment, AdamW, averaged weights.

Source: the assignment is that of TOOD (arXiv:2108.07755): a cell answers for an object when score and overlap together are
among the object's best; the score it learns is that overlap.
"""

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from edgemeter.models.detector import Detector, cells
from edgemeter.models.progress import Tell
from edgemeter.models.scene import SIZE_PX, Stream, draw
from edgemeter.models.shapes import CLASSES

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
        scenes.append(draw(seed, Stream.TRAIN, index))
        tell("drawing scenes", index + 1, count)
    most = max(len(scene.classes) for scene in scenes)
    boxes = torch.zeros(count, most, 4)
    classes = torch.full((count, most), -1, dtype=torch.int64)
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

    Args:
        distances: float32 [B, N, 4], in strides, as the model answers.
        logits: float32 [B, N, C].
        boxes: float32 [B, M, 4], the true boxes in pixels.
        classes: int64 [B, M], -1 where there is none.
        done_ratio: how much of the training lies behind, 0..1.
    """
    centres, strides = cells()
    reach = distances * strides
    found = torch.cat([centres - reach[..., :2], centres + reach[..., 2:]], -1)
    with torch.no_grad():
        target, weights = assign(found, logits.sigmoid(), centres, boxes, classes, done_ratio)
    wanted = boxes.gather(1, target[..., None].expand(-1, -1, 4))
    label = functional.one_hot(classes.gather(1, target).clamp(min=0), len(CLASSES)) * weights[..., None]
    total = weights.sum().clamp(min=1.0)
    overlap = _generalised_overlap(found, wanted)
    scores: Tensor = functional.binary_cross_entropy_with_logits(logits, label, reduction="sum")
    return (scores + _BOX_WEIGHT * ((1 - overlap) * weights).sum()) / total


def assign(found: Tensor, scores: Tensor, centres: Tensor, boxes: Tensor, classes: Tensor, done_ratio: float) -> tuple[Tensor, Tensor]:
    """Return, for each cell, the object it answers for, int64 [B, N], and how much that counts, float32 [B, N], 0 for background.

    Args:
        found: float32 [B, N, 4], the boxes the cells answer with, in pixels.
        scores: float32 [B, N, C], 0..1.
        centres: float32 [N, 2] in pixels.
        boxes: float32 [B, M, 4], the true boxes.
        classes: int64 [B, M], -1 where there is none.
        done_ratio: how much of the training lies behind, 0..1.
    """
    first, last = _OVERLAP_POWERS
    is_real = classes >= 0
    inside = (centres > boxes[:, :, None, :2]).all(-1) & (centres < boxes[:, :, None, 2:]).all(-1) & is_real[..., None]
    overlap = _overlap(boxes[:, :, None], found[:, None]).clamp(min=0) * inside
    picked = scores.transpose(1, 2).gather(1, classes.clamp(min=0)[..., None].expand(-1, -1, scores.shape[1]))
    metric = (picked**_SCORE_POWER * overlap ** (first + (last - first) * done_ratio) + _TINY) * inside
    best = metric.topk(_CANDIDATES, -1)
    chosen = torch.zeros_like(metric).scatter(-1, best.indices, 1.0) * inside
    # A cell that several objects claim answers for the one it overlaps most.
    target = (overlap + _TINY).mul(chosen).argmax(1)
    owned = chosen * functional.one_hot(target, boxes.shape[1]).transpose(1, 2)
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
    others = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": kernels, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]


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
