"""Grids of cells over the input, one for each stride.

They are those of detectors with a prediction for each cell.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from edgemeter.agent.vision.decoders import Floats, Shape

# The usual ones first. Source: Ultralytics' configurations, P3 to P5, P3 to P6, P2 to P5.
STRIDES = ((8, 16, 32), (8, 16, 32, 64), (4, 8, 16, 32))

_MAP_STRIDES = (8, 16, 32, 64, 4)


@dataclass(frozen=True, slots=True)
class HeadMaps:
    """By stride, the outputs with distances and scores, which may be the same.

    The numbers of these values of a cell, and their axis, are here too.
    """

    outputs: dict[int, tuple[int, int]]
    distances: int
    classes: int
    axis: int

    def cells(self, output: Floats) -> Floats:
        """Return an output with a row for each value: float32 [values, cells]."""
        return np.asarray(
            output[0].reshape(output.shape[1], -1)
            if self.axis == 1
            else output[0].reshape(-1, output.shape[-1]).T
        )


def grid_side(size_px: int, stride: int) -> int:
    """Return the number of cells along a side of the input, rounded up.

    It is rounded as by a convolution with padding.
    """
    return -(-size_px // stride)


def cell_count(height: int, width: int, strides: Sequence[int]) -> int:
    return sum(grid_side(height, stride) * grid_side(width, stride) for stride in strides)


def strides_of(cells: int | None, size: tuple[int, int] | None) -> tuple[int, ...]:
    """Return the usual strides whose grids have that number of cells.

    The input has this height and width; the result is empty if there are none.
    """
    if cells is None or size is None:
        return ()
    return next((strides for strides in STRIDES if cell_count(*size, strides) == cells), ())


def anchors_per_cell(count: int | None, size: tuple[int, int] | None) -> int:
    """Return the number of anchors per cell of usual grids, 1 or 3; 0 for other grids.

    `count` is the number of all anchors.
    """
    return next(
        (
            number
            for number in (1, 3)
            if count and count % number == 0 and strides_of(count // number, size)
        ),
        0,
    )


@lru_cache(maxsize=8)
def grid_cells(height: int, width: int, strides: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Return the cells' x, y and their strides, each grid row by row.

    x and y are in cells, float32 [n, 2]; strides are in pixels, float32 [n, 1].
    """
    corners, sizes = [], []
    for stride in strides:
        y, x = np.mgrid[: grid_side(height, stride), : grid_side(width, stride)]
        corners.append(np.stack([x.ravel(), y.ravel()], axis=1))
        sizes.append(np.full((x.size, 1), stride))
    return np.concatenate(corners).astype(np.float32), np.concatenate(sizes).astype(np.float32)


def head_maps(
    shapes: Sequence[Shape], size: tuple[int, int] | None, widths: Sequence[int], number: int | None
) -> HeadMaps | None:
    """Return the maps of a detector for each stride; None for other outputs.

    They are distances (of these widths), scores, and perhaps their sum. If one map has both, the
    distances have the width that leaves this number of scores.
    """
    axis, maps = _by_stride(shapes, size)
    outputs, values = {}, set()
    for stride, level in maps.items():
        channels = [width or 0 for _, width in level]
        distances = next((width for width in widths if width in channels), widths[0])
        if len(level) == 1:
            distances = next(
                (width for width in widths if channels[0] - width == number), widths[0]
            )
            outputs[stride], classes = (level[0][0], level[0][0]), channels[0] - distances
        else:
            first = channels.index(distances) if distances in channels else 0
            # The sum has one value in each cell.
            by_width = sorted(
                set(range(len(level))) - {first}, key=channels.__getitem__, reverse=True
            )
            outputs[stride], classes = (
                (level[first][0], level[by_width[0]][0]),
                channels[by_width[0]],
            )
            if (
                len(level) > 3
                or distances not in channels
                or (len(level) == 3 and channels[by_width[1]] != 1)
            ):
                return None
        values.add((distances, classes))
    if len(outputs) < 2 or len(values) != 1 or min(values)[1] < 1:
        return None
    return HeadMaps(outputs, *min(values), axis)


def _by_stride(
    shapes: Sequence[Shape], size: tuple[int, int] | None
) -> tuple[int, dict[int, list[tuple[int, int | None]]]]:
    """Return the axis of the channels, and by stride the indices and channels of its maps.

    The result by stride is empty if an output is no map.
    """
    for axis in (1, -1) if size else ():
        maps: dict[int, list[tuple[int, int | None]]] = {}
        for index, shape in enumerate(shapes):
            cells = shape[2:] if axis == 1 else shape[1:-1]
            sides = (
                {
                    stride: (grid_side(size[0], stride), grid_side(size[1], stride))
                    for stride in _MAP_STRIDES
                }
                if size
                else {}
            )
            stride = next(
                (
                    stride
                    for stride, (rows, columns) in sides.items()
                    if cells in ((rows, columns), (rows * columns,))
                ),
                None,
            )
            if stride is None or shape[0] not in (1, None):
                break
            maps.setdefault(stride, []).append((index, shape[axis]))
        else:
            return axis, maps
    return 1, {}
