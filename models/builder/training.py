"""The shipped detector and its training from nothing: drawn scenes, task-aligned assignment, AdamW, averaged weights.

Plain 3 x 3 convolutions, two grids, separate branches for where and what. Every operation has an integer kernel in LiteRT and ONNX
Runtime: ReLU and sigmoid only, nearest-neighbour enlargement, no division. Importing this module imports PyTorch.
Source: the assignment is that of TOOD (arXiv:2108.07755): a cell is responsible for an object when score and overlap together are
among the object's best; the score it learns is that overlap.
"""

import copy
import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgemeter.agent.base.progress import Tell
from edgemeter.models.builder.drawn_scenes import CLASSES, SIZE_PX, Stream, draw_scene

# Pixels from one cell of the detector's two grids to the next.
STRIDES = (8, 16)
_NECK = 48
_BATCH = 32
_TINY = 1e-9


class _Residual(nn.Module):  # type: ignore[misc]
    """Two convolutions beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = _convolution(channels, channels)
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's answer, same shape."""
        return functional.relu(x + self.second(self.first(x)))


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
        # The untrained answers are boxes of this many strides to each side, so that every cell starts with an overlap, and a score so low
        # that nearly all cells are background. Source: Focal Loss, arXiv:1708.02002, 4.1.
        self.boxes = nn.ModuleList(_branch(4, 1.5) for _ in STRIDES)
        self.scores = nn.ModuleList(_branch(len(CLASSES), -4.6) for _ in STRIDES)

    def answers(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return edge distances [B, N, 4] (not yet kept positive) and class logits [B, N, C], as training wants them."""
        fine = self.fine(images)
        coarse = self.narrow_coarse(self.coarse(fine))
        fine = self.narrow_fine(fine) + functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        boxes, scores = (
            torch.cat([branch(grid).permute(0, 2, 3, 1).flatten(1, 2) for branch, grid in zip(branches, (fine, coarse), strict=True)], 1)
            for branches in (self.boxes, self.scores)
        )
        return boxes, scores

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes [B, N, 4], distances in strides, >= 0, and scores [B, N, C], 0..1, of images float32 [B, 3, S, S], RGB, 0..1."""
        boxes, logits = self.answers(images)
        return functional.relu(boxes), torch.sigmoid(logits)


def _branch(channels: int, untrained: float) -> nn.Sequential:
    """Return the way from a grid's features to `channels` numbers per cell."""
    last = nn.Conv2d(_NECK, channels, 1)
    nn.init.normal_(last.weight, std=0.01)
    nn.init.constant_(last.bias, untrained)
    return nn.Sequential(_convolution(_NECK, _NECK, groups=_NECK), _convolution(_NECK, _NECK, size=1), last)


def _convolution(inputs: int, outputs: int, *, stride: int = 1, size: int = 3, groups: int = 1) -> nn.Sequential:
    """Return a convolution, its normalisation and ReLU; the three become one operation on export."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def train(seed: int, steps: int, tell: Tell) -> Detector:
    """Return a trained detector, in evaluation mode, its weights averaged over the last steps."""
    torch.manual_seed(seed)
    # The result depends on their number.
    torch.set_num_threads(1)
    pool = _draw_pool(seed, min(12_000, steps * _BATCH), tell)
    model = Detector().to(memory_format=torch.channels_last).train()
    average: Detector = copy.deepcopy(model).eval()
    # The weights of convolutions decay, biases and normalisation do not.
    kernels, vectors = ([p for p in model.parameters() if (p.ndim > 1) == is_kernel] for is_kernel in (True, False))
    groups = [{"params": kernels, "weight_decay": 5e-4}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=0.0)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        for group in optimiser.param_groups:
            # A short rise, then half a cosine down to a fiftieth.
            rise = min(1.0, (step + 1) / 200)
            group["lr"] = 1.2e-2 * rise * (0.02 + 0.98 * (1 + math.cos(math.pi * step / steps)) / 2)
        images, boxes, classes = _batch(pool, generator)
        distances, logits = model.answers(images)
        value = _loss(distances, logits, boxes, classes, step / steps)
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimiser.step()
        # The memory grows to about a thousand steps.
        keep = min(0.999, (step + 1) / (step + 10))
        with torch.no_grad():
            for old, new in zip(average.state_dict().values(), model.state_dict().values(), strict=True):
                if old.is_floating_point():
                    old.lerp_(new, 1 - keep)
        tell(f"training, loss {value.item():.3f}", step + 1, steps)
    return average


def _draw_pool(seed: int, count: int, tell: Tell) -> tuple[Tensor, Tensor, Tensor]:
    """Return the training scenes: images uint8 [n, 3, S, S]; boxes float32 [n, M, 4]; classes int64 [n, M], -1 where there is none."""
    scenes = []
    for index in range(count):
        scenes.append(draw_scene(seed, Stream.TRAIN, index))
        tell("drawing scenes", index + 1, count)
    images = torch.from_numpy(np.stack([scene.image for scene in scenes])).permute(0, 3, 1, 2).contiguous()
    boxes = nn.utils.rnn.pad_sequence([torch.from_numpy(scene.boxes) for scene in scenes], batch_first=True)
    classes = nn.utils.rnn.pad_sequence([torch.from_numpy(scene.classes) for scene in scenes], batch_first=True, padding_value=-1)
    return images, boxes, classes


def _batch(pool: tuple[Tensor, Tensor, Tensor], generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return scenes picked at random, turned, mirrored and with their colours exchanged alike: images 0..1, boxes, classes."""
    images, boxes, classes = pool
    picked = torch.randint(len(images), (_BATCH,), generator=generator)
    turns, is_mirrored = (int(torch.randint(limit, (), generator=generator)) for limit in (4, 2))
    images, boxes = images[picked][:, torch.randperm(3, generator=generator)].float() / 255, boxes[picked]
    for _ in range(turns):
        images = images.rot90(1, (2, 3))
        boxes = torch.stack([boxes[..., 1], SIZE_PX - boxes[..., 2], boxes[..., 3], SIZE_PX - boxes[..., 0]], -1)
    if is_mirrored:
        images = images.flip(3)
        boxes = torch.stack([SIZE_PX - boxes[..., 2], boxes[..., 1], SIZE_PX - boxes[..., 0], boxes[..., 3]], -1)
    return images.contiguous(memory_format=torch.channels_last), boxes, classes[picked]


def _loss(distances: Tensor, logits: Tensor, boxes: Tensor, classes: Tensor, done_ratio: float) -> Tensor:
    """Return the loss of a batch: binary cross-entropy of the scores plus generalised overlap of the boxes.

    Of the model: `distances` in strides and `logits`, float32 [B, N, 4] and [B, N, C]. Of the truth: boxes in pixels, float32 [B, M, 4],
    and classes, int64 [B, M], -1 where there is none. `done_ratio` is how much of the training lies behind, 0..1.
    """
    centres, strides = _cells()
    reach = distances * strides
    predicted = torch.cat([centres - reach[..., :2], centres + reach[..., 2:]], -1)
    with torch.no_grad():
        target, weights = _assign(predicted, logits.sigmoid(), centres, boxes, classes, done_ratio)
    matched_boxes = boxes.gather(1, target[..., None].expand(-1, -1, 4))
    label = functional.one_hot(classes.gather(1, target).clamp(min=0), len(CLASSES)) * weights[..., None]
    overlap, union = _overlap(predicted, matched_boxes)
    # Generalised, it still points the way where boxes do not meet. Source: arXiv:1902.09630.
    around = _area(torch.minimum(predicted[..., :2], matched_boxes[..., :2]), torch.maximum(predicted[..., 2:], matched_boxes[..., 2:]))
    around = around.clamp(min=_TINY)
    generalised = overlap - (around - union) / around
    scores: Tensor = functional.binary_cross_entropy_with_logits(logits, label, reduction="sum")
    return (scores + 3 * ((1 - generalised) * weights).sum()) / weights.sum().clamp(min=1.0)


def _cells() -> tuple[Tensor, Tensor]:
    """Return all cells' centres, float32 [N, 2] as x, y in pixels, and their strides, float32 [N, 1], in the order of the outputs."""
    centres, strides = [], []
    for stride in STRIDES:
        side = (torch.arange(SIZE_PX // stride) + 0.5) * stride
        centres.append(torch.cartesian_prod(side, side).flip(1))
        strides.append(torch.full((len(side) ** 2, 1), float(stride)))
    return torch.cat(centres), torch.cat(strides)


def _assign(predicted: Tensor, scores: Tensor, centres: Tensor, boxes: Tensor, classes: Tensor, done_ratio: float) -> tuple[Tensor, Tensor]:
    """Return, for each cell, the object it answers for, int64 [B, N], and how much that counts, float32 [B, N], 0 for background.

    `predicted` are the boxes the cells answer with, float32 [B, N, 4] in pixels, `centres` float32 [N, 2]; the rest as of `_loss`.
    """
    inside = (centres > boxes[:, :, None, :2]).all(-1) & (centres < boxes[:, :, None, 2:]).all(-1) & (classes >= 0)[..., None]
    overlap = _overlap(boxes[:, :, None], predicted[:, None])[0].clamp(min=0) * inside
    picked = scores.transpose(1, 2).gather(1, classes.clamp(min=0)[..., None].expand(-1, -1, scores.shape[1]))
    # Early on every cell within an object learns, however poor its box; at the end mostly the one with the best box.
    metric = (picked**0.5 * overlap ** (2 + 4 * done_ratio) + _TINY) * inside
    best = metric.topk(9, -1)
    candidates = torch.zeros_like(metric).scatter(-1, best.indices, 1.0) * inside
    # A cell that several objects claim answers for the one it overlaps most.
    target = (overlap + _TINY).mul(candidates).argmax(1)
    owned = candidates * functional.one_hot(target, boxes.shape[1]).transpose(1, 2)
    metric = metric * owned
    peak = (overlap * owned).amax(-1, keepdim=True)
    weights = (metric / metric.amax(-1, keepdim=True).clamp(min=_TINY) * peak).amax(1)
    return target, weights


def _overlap(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return intersection over union, and the union, broadcast over the leading dimensions."""
    shared = _area(torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:]))
    union = (_area(a[..., :2], a[..., 2:]) + _area(b[..., :2], b[..., 2:]) - shared).clamp(min=_TINY)
    return shared / union, union


def _area(first: Tensor, last: Tensor) -> Tensor:
    """Return the area between two corners, 0 where they are the wrong way round."""
    return (last - first).clamp(min=0).prod(-1)


def fold(model: nn.Module) -> nn.Module:
    """Return a copy whose normalisations are part of the convolutions before them: the same answers, a third of the operations."""
    folded: nn.Module = copy.deepcopy(model).eval()
    for block in folded.modules():
        if isinstance(block, nn.Sequential) and len(block) > 1 and isinstance(block[1], nn.BatchNorm2d):
            block[0] = nn.utils.fusion.fuse_conv_bn_eval(block[0], block[1])
            block[1] = nn.Identity()
    return folded
