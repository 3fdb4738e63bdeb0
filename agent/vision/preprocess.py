"""From a photograph to a model's input tensor, as the model's card declares it."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.errors import ConfigError
from edgemeter.agent.recognition import card
from edgemeter.agent.runtimes import TensorInfo
from edgemeter.agent.vision import bilinear, photograph
from edgemeter.agent.vision.decoder import Frame

Array = NDArray[Any]
Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Placement:
    """Which part of the photograph goes where: `crop` (x1, y1, x2, y2, pixels of the photo) fills `width` x `height` at `left`, `top`."""

    crop: tuple[float, float, float, float]
    width: int
    height: int
    left: int
    top: int

    def frame(self, photo: tuple[int, int], wanted: card.Input) -> Frame:
        """Return the mapping from the photograph (its width and height) to the input."""
        x1, y1, x2, y2 = self.crop
        scale_x, scale_y = self.width / (x2 - x1), self.height / (y2 - y1)
        return Frame(
            photo_width=photo[0],
            photo_height=photo[1],
            input_width=wanted.width,
            input_height=wanted.height,
            scale_x=scale_x,
            scale_y=scale_y,
            offset_x=self.left - x1 * scale_x,
            offset_y=self.top - y1 * scale_y,
        )


def place(photo: tuple[int, int], wanted: card.Input) -> Placement:
    """Return where a photograph of this width and height goes in the input.

    Source: the letterbox's rounding is that of Ultralytics (`LetterBox`), whose published AP was measured with it.
    """
    photo_width, photo_height = photo
    whole = (0.0, 0.0, float(photo_width), float(photo_height))
    if wanted.resize == "stretch":
        return Placement(whole, wanted.width, wanted.height, 0, 0)
    if wanted.resize == "centre-crop":
        scale = wanted.crop_ratio * min(photo_width / wanted.width, photo_height / wanted.height)
        half_x, half_y = wanted.width * scale / 2, wanted.height * scale / 2
        x, y = photo_width / 2, photo_height / 2
        return Placement((x - half_x, y - half_y, x + half_x, y + half_y), wanted.width, wanted.height, 0, 0)
    scale = min(wanted.width / photo_width, wanted.height / photo_height)
    width, height = max(round(photo_width * scale), 1), max(round(photo_height * scale), 1)
    if wanted.resize == "letterbox-top-left":
        return Placement(whole, width, height, 0, 0)
    return Placement(whole, width, height, round((wanted.width - width) / 2 - 0.1), round((wanted.height - height) / 2 - 0.1))


class Preprocessor:
    """Makes input tensors for one model; keeps the table from pixel to tensor value."""

    def __init__(self, wanted: card.Input, info: TensorInfo) -> None:
        self._wanted = wanted
        self._table = pixel_table(wanted, info)
        self._has_batch = len(info.shape) != 3
        self._imaging = photograph.pillow()

    def load(self, path: Path) -> tuple[Array, Frame]:
        """Return the input tensor (batch, layout, dtype and quantisation as the model declares) and how the photo lies in it.

        The batch is 1; a model whose input has three axes gets none.

        Raises:
            ConfigError: the file is not an image that can be read (named).
        """
        photo = photograph.read(path)
        placement = place(photo.size, self._wanted)
        pixels = self._arrange(self._resize(photo, placement), placement)
        values = self._values(pixels)
        return values[None] if self._has_batch else values, placement.frame(photo.size, self._wanted)

    def _resize(self, photo: Any, placement: Placement) -> Pixels:
        """Return the placed part of the photograph: uint8 [h, w, 3], RGB.

        A crop is resized with smoothing, as torchvision does for the classifiers it is meant for; everything else without.
        """
        size = (placement.width, placement.height)
        if self._wanted.resize == "centre-crop":
            return np.asarray(photo.resize(size, self._imaging.Resampling.BILINEAR, box=placement.crop))
        pixels = np.asarray(photo)
        return pixels if photo.size == size else bilinear.resize(pixels, *size)

    def _arrange(self, pixels: Pixels, placement: Placement) -> Pixels:
        """Return the pixels (uint8 [h, w, 3], RGB) in the input's colour order, layout and full size, contiguous."""
        wanted = self._wanted
        view = pixels[..., ::-1] if wanted.colour == "BGR" else pixels
        if (placement.width, placement.height) != (wanted.width, wanted.height):
            canvas = np.full((wanted.height, wanted.width, 3), wanted.pad, np.uint8)
            canvas[placement.top : placement.top + placement.height, placement.left : placement.left + placement.width] = view
            view = canvas
        return np.ascontiguousarray(view.transpose(2, 0, 1) if wanted.layout == "NCHW" else view)

    def _values(self, pixels: Pixels) -> Array:
        """Return the tensor values of `pixels`, looked up channel by channel only where channels differ."""
        first, *others = self._table
        if all(np.array_equal(first, other) for other in others):
            return pixels if first.dtype == np.uint8 and np.array_equal(first, np.arange(256)) else np.take(first, pixels)
        values = np.empty(pixels.shape, first.dtype)
        for channel, table in enumerate(self._table):
            where = (channel,) if self._wanted.layout == "NCHW" else (..., channel)
            values[where] = np.take(table, pixels[where])
        return values


def pixel_table(wanted: card.Input, info: TensorInfo) -> Array:
    """Return the tensor value of every pixel value: [3, 256], in the input's channel order and dtype.

    Raises:
        ConfigError: the input's dtype is not one that a photograph can become.
    """
    dtype = _dtype(info)
    mean, sd = np.array(wanted.mean)[:, None], np.array(wanted.sd)[:, None]
    real = (np.arange(256) - mean) / sd
    if dtype.kind != "f":
        bounds = np.iinfo(dtype)
        real = np.clip(np.rint(real / (info.scale or 1.0)) + (info.zero_point or 0), bounds.min, bounds.max)
    table: Array = real.astype(dtype)
    return table


def _dtype(info: TensorInfo) -> np.dtype[Any]:
    with suppress(TypeError):
        dtype = np.dtype(info.dtype)
        if dtype.kind in "fiu":
            return dtype
    message = f"input {info.name!r} has dtype {info.dtype!r}: a photograph becomes numpy's float and integer values only"
    raise ConfigError(message)
