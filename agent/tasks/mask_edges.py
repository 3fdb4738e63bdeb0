"""Masks as edges: the pixel numbers at which the mask alternately begins and ends.

Pixels are numbered down the columns. Masks are read from all forms of COCO.
"""

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.datasets.coco import Rle
from edgemeter.agent.tasks.similarity import spread

Edges = NDArray[np.int64]
# Outlines are drawn with this number of steps a pixel. Source: cocoapi `maskApi.c`, `rleFrPoly`.
_STEPS = 5
# Far above any photograph's side.
FARTHEST_PX = 1e6


def edges_of(mask: NDArray[Any]) -> Edges:
    """Return the edges of a mask [height, width] of the pixels that are not 0."""
    return np.flatnonzero(np.diff(mask.ravel(order="F") != 0, prepend=False, append=False))


def edges_of_outline(outline: Sequence[Sequence[float]] | Rle, height: int, width: int) -> Edges:
    """Return the edges of an outline: polygons, or a run-length code.

    Polygons are in pixels of the image; the runs of a code may be a list or a text.

    Raises:
        ValueError: there is no polygon, one has an x without y, or the code does not fill the
            image.
    """
    if not isinstance(outline, Rle):
        if not outline or any(len(polygon) % 2 for polygon in outline):
            raise ValueError("it is empty, or has an x without y")
        if max(map(abs, chain.from_iterable(outline))) > FARTHEST_PX:
            raise ValueError(f"a corner lies further out than {FARTHEST_PX:,.0f} pixels")
        return _union(
            [_of_polygon(np.array(polygon).reshape(-1, 2), height, width) for polygon in outline]
        )
    runs = (
        _from_text(outline.counts)
        if isinstance(outline.counts, str)
        else np.array(outline.counts, np.int64)
    )
    if (runs < 0).any() or runs.sum() != height * width:
        raise ValueError(f"invalid RLE: its runs do not fill {height} x {width} pixels")
    return _paired(np.cumsum(runs))


def _from_text(text: str) -> NDArray[np.int64]:
    """Return the runs of a text, which has five bits a character, the lowest first.

    From the third run on, it has the difference from the last run but one.
    """
    digits = np.frombuffer(text.encode(), np.uint8).astype(np.int64) - ord("0")
    is_last = digits & 32 == 0
    if not len(digits) or not is_last[-1] or ((digits < 0) | (digits > 63)).any():
        raise ValueError("invalid RLE: its text ends early, or has other characters")
    first = np.append(0, np.flatnonzero(is_last)[:-1] + 1)
    shift = 5 * (np.arange(len(digits)) - np.repeat(first, np.diff(first, append=len(digits))))
    runs: NDArray[np.int64] = np.add.reduceat(
        (digits & 31) - 2 * (digits & 16) * is_last << np.minimum(shift, 50), first
    )
    runs[1::2], runs[2::2] = np.cumsum(runs[1::2]), np.cumsum(runs[2::2])
    return runs


def text_of(edges: Edges, pixels: int) -> str:
    """Return the run-length code of a mask in an image of `pixels`.

    It is the text that `edges_of_outline` reads.
    """
    ends = [*edges.tolist(), *([pixels] if pixels not in edges[-1:] else [])]
    runs = [end - begin for begin, end in pairwise([0, *ends])]
    digits = []
    for number, run in enumerate(runs):
        value, has_more = run - (runs[number - 2] if number > 2 else 0), True
        while has_more:
            digit, value = value & 31, value >> 5
            has_more = value != (-1 if digit & 16 else 0)
            digits.append(chr(ord("0") + digit + 32 * has_more))
    return "".join(digits)


def _of_polygon(corners: NDArray[np.float64], height: int, width: int) -> Edges:
    """Return the edges of a polygon [n, 2], as the COCO API draws it.

    The edges are where its sides cross the centres of columns.
    """
    begin = (_STEPS * corners + 0.5).astype(np.int64)
    sides = np.concatenate([begin, np.roll(begin, -1, axis=0)], axis=1)
    # Each side as steps along its longer axis, from the lower end on.
    is_steep = np.abs(sides[:, 2] - sides[:, 0]) < np.abs(sides[:, 3] - sides[:, 1])
    sides[is_steep] = sides[is_steep][:, [1, 0, 3, 2]]
    is_back = sides[:, 0] > sides[:, 2]
    sides[is_back] = sides[is_back][:, [2, 3, 0, 1]]
    along, across, last, last_across = sides.T
    slopes, counts = (last_across - across) / np.maximum(last - along, 1), last - along + 1
    side = np.repeat(np.arange(len(sides)), counts)
    step = spread(np.zeros_like(counts), counts)
    longer, shorter = (
        along[side] + step,
        (across[side] + slopes[side] * step + 0.5).astype(np.int64),
    )
    x, y = np.where(is_steep[side], (shorter, longer), (longer, shorter))
    column, centre = np.divmod(np.minimum(x[1:], x[:-1]), _STEPS)
    row = np.clip((np.minimum(y[1:], y[:-1]) + _STEPS // 2) // _STEPS, 0, height)
    is_edge = (
        (side[1:] == side[:-1])
        & (x[1:] != x[:-1])
        & (centre == _STEPS // 2)
        & (column >= 0)
        & (column < width)
    )
    return _paired(np.append(np.sort((column * height + row)[is_edge]), height * width))


def _paired(edges: Edges) -> Edges:
    """Return the edges without the last one if it is a beginning, at the end of the image."""
    return edges[: len(edges) // 2 * 2]


def _union(parts: Sequence[Edges]) -> Edges:
    edges = np.concatenate(parts)
    order = np.argsort(edges, kind="stable")
    change = np.resize([1, -1], len(edges))[order]
    depth = np.cumsum(change)
    return np.asarray(edges[order][(depth == 0) | (depth == change)])
