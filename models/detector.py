"""The small detector that ships: plain 3 x 3 convolutions, two grids, separate branches for where and what.

Every operation has an integer kernel in LiteRT and ONNX Runtime: ReLU and sigmoid only, nearest-neighbour enlargement, no division.
Importing this module imports PyTorch; only `training` and `export` do.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgemeter.models.scene import SIZE_PX
from edgemeter.models.shapes import CLASSES

STRIDES = (8, 16)
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
        """Return boxes [B, N, 4], distances in strides, >= 0, and scores [B, N, C], 0..1.

        Args:
            images: float32 [B, 3, SIZE_PX, SIZE_PX], RGB, 0..1.
        """
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
