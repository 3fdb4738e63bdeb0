"""Turns a photograph into a model's input tensor, by its card, and outputs into real values."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card, ImageInput
from edgemeter.agent.runtimes import Loaded, TensorInfo, dequantise, fixed_batch
from edgemeter.agent.runtimes.adapter import describe_tensor, shape_fits
from edgemeter.agent.vision import photograph
from edgemeter.agent.vision.decoders import PhotoFrame
from edgemeter.agent.vision.decoders.size_inputs import pictures_of
from edgemeter.agent.vision.photograph import Pixels
from edgemeter.agent.vision.resize import fastest_resize, resize_bilinear, resize_to_half_width

# TorchScript declares no inputs; its models take float32.
_UNDECLARED = TensorInfo("input", (), "float32")
Array = NDArray[Any]


def input_of(model: Card, loaded: Loaded) -> TensorInfo:
    """Return the photograph's input.

    Raises:
        ConfigError: there are several inputs, or the shape differs from the card's.
    """
    if not loaded.inputs:
        return _UNDECLARED
    pictures = pictures_of(loaded.inputs)
    if len(pictures) != 1:
        names = ", ".join(repr(info.name) for info in pictures)
        raise ConfigError(
            f"model {model.name!r} takes {len(pictures)} inputs ({names}), a photograph fills "
            "one: export it with the image only"
        )
    info, image = pictures[0], model.image
    size = (image.height, image.width)
    batch = fixed_batch(loaded)
    shape = (batch, *size, 3) if image.layout == "NHWC" else (batch, 3, *size)
    # torchvision's detectors have no batch axis.
    if not shape_fits(shape, info.shape) and not shape_fits(shape[1:], info.shape):
        raise ConfigError(
            f"model {model.name!r} takes {describe_tensor(info.dtype, info.shape)}, its card has "
            f"{[1, *shape[1:]]} ({image.layout}): "
            "correct height, width or layout in the card"
        )
    if image.resize == "none" and any(
        info.shape[-3:-1] if image.layout == "NHWC" else info.shape[-2:]
    ):
        raise ConfigError(
            f"model {model.name!r} takes {describe_tensor(info.dtype, info.shape)}, but with "
            'resize = "none" in its card photographs keep '
            "their own size: choose another resize"
        )
    return info


def values_of_first(outputs: Sequence[NDArray[Any]], loaded: Loaded) -> list[NDArray[np.float32]]:
    """Return the real values of the batch's first sample, with the batch axis.

    `loaded` is as the runtime returned it.
    """
    batch = fixed_batch(loaded)
    return real_values(
        [output[:1] if output.shape[:1] == (batch,) else output for output in outputs], loaded
    )


def real_values(outputs: Sequence[NDArray[Any]], loaded: Loaded) -> list[NDArray[np.float32]]:
    """Return the outputs as float32, dequantised by their declared scale and zero point."""
    if not loaded.outputs:
        return [output.astype(np.float32, copy=False) for output in outputs]
    return [dequantise(output, info) for output, info in zip(outputs, loaded.outputs, strict=True)]


@dataclass(frozen=True, slots=True)
class Placement:
    """A photograph in the input: `crop` fills `width` x `height` at `left`, `top`.

    The crop is x1, y1, x2, y2 in pixels of the photograph.
    """

    crop: tuple[float, float, float, float]
    width: int
    height: int
    left: int
    top: int

    def frame(self, photo: tuple[int, int], image: ImageInput) -> PhotoFrame:
        """Return the mapping from the photograph (its width and height) to the input."""
        x1, y1, x2, y2 = self.crop
        scale_x, scale_y = self.width / (x2 - x1), self.height / (y2 - y1)
        height, width = self.input_size(image)
        return PhotoFrame(
            photo_width=photo[0],
            photo_height=photo[1],
            input_width=width,
            input_height=height,
            scale_x=scale_x,
            scale_y=scale_y,
            offset_x=self.left - x1 * scale_x,
            offset_y=self.top - y1 * scale_y,
        )

    def input_size(self, image: ImageInput) -> tuple[int, int]:
        """Return height and width of the input.

        They are the card's, or the photograph's if it is not resized.
        """
        return (self.height, self.width) if image.resize == "none" else (image.height, image.width)


def placement_of(photo: tuple[int, int], image: ImageInput) -> Placement:
    """Return the placement of a photograph of this width and height.

    Source of the letterbox's rounding: Ultralytics (`LetterBox`), whose published AP was measured
    with it.
    """
    photo_width, photo_height = photo
    full = (0.0, 0.0, float(photo_width), float(photo_height))
    if image.resize == "none":
        return Placement(full, photo_width, photo_height, 0, 0)
    if image.resize in ("stretch", "stretch-smooth"):
        return Placement(full, image.width, image.height, 0, 0)
    if image.resize == "centre-crop":
        scale = image.crop_ratio * min(photo_width / image.width, photo_height / image.height)
        half_x, half_y = image.width * scale / 2, image.height * scale / 2
        x, y = photo_width / 2, photo_height / 2
        # A crop of the whole photograph may exceed it by rounding.
        crop = (
            max(x - half_x, 0.0),
            max(y - half_y, 0.0),
            min(x + half_x, float(photo_width)),
            min(y + half_y, float(photo_height)),
        )
        return Placement(crop, image.width, image.height, 0, 0)
    scale = min(image.width / photo_width, image.height / photo_height)
    width, height = max(round(photo_width * scale), 1), max(round(photo_height * scale), 1)
    if image.resize == "letterbox-top-left":
        return Placement(full, width, height, 0, 0)
    return Placement(
        full,
        width,
        height,
        round((image.width - width) / 2 - 0.1),
        round((image.height - height) / 2 - 0.1),
    )


class Preprocessor:
    """Makes input tensors for one model, with a table from pixel to tensor value."""

    def __init__(self, image: ImageInput, info: TensorInfo) -> None:
        self._wanted = image
        self.height, self.width = image.height, image.width
        self._table = pixel_table(image, info)
        self._shift = _shift(self._table)
        self._has_batch = len(info.shape) != 3
        self._batch = (info.shape[0] or 1) if len(info.shape) == 4 else 1
        self._imaging = photograph.pillow()

    def load(self, path: Path) -> tuple[Array, PhotoFrame]:
        """Return the input tensor and the mapping from the photograph.

        Batch, layout, dtype and quantisation are as declared. A model with a fixed batch gets
        copies; an input of three axes gets no batch axis.
        """
        return self.load_photo(photograph.read(path))

    def load_photo(self, photo: Any) -> tuple[Array, PhotoFrame]:
        """Return the same for a photograph from `photograph.read`."""
        placement = placement_of(photo.size, self._wanted)
        values = self.tensor(self.resized(photo, placement), placement)
        if self._batch > 1:
            values = np.repeat(values[None], self._batch, axis=0)
        elif self._has_batch:
            values = values[None]
        return values, placement.frame(photo.size, self._wanted)

    def resized(self, photo: Any, placement: Placement) -> Pixels:
        """Return the placed part of the photograph: uint8 [h, w, 3], RGB.

        `centre-crop` and `stretch-smooth` smooth, as in the training of classifiers; the others do
        not.
        """
        size = (placement.width, placement.height)
        if self._wanted.resize in ("centre-crop", "stretch-smooth"):
            return np.asarray(
                photo.resize(size, self._imaging.Resampling.BILINEAR, box=placement.crop)
            )
        if photo.size == size:
            return np.asarray(photo)
        resize = fastest_resize()
        if resize is resize_bilinear and photo.width == 2 * placement.width:
            planes = (
                np.frombuffer(photo.tobytes("raw", colour), np.uint8).reshape(photo.height, -1)
                for colour in "RGB"
            )
            return resize_to_half_width(planes, *size)
        # Pillow stores four bytes a pixel, which resize faster without repacking.
        pixels = np.frombuffer(photo.tobytes("raw", "RGBX"), np.uint8).reshape(
            photo.height, photo.width, 4
        )
        return resize(pixels, *size)

    def tensor(self, pixels: Pixels, placement: Placement) -> Array:
        """Return the placed pixels as the input's values, in its layout and full size.

        The pixels are uint8 [h, w, 3], RGB; the result has no batch axis.
        """
        image = self._wanted
        is_planar = image.layout == "NCHW"
        size = placement.input_size(image)
        values = np.empty((3, *size) if is_planar else (*size, 3), self._table.dtype)
        is_full = (placement.height, placement.width) == size
        rows = slice(placement.top, placement.top + placement.height)
        columns = slice(placement.left, placement.left + placement.width)
        for channel in range(3):
            plane = values[channel] if is_planar else values[..., channel]
            if not is_full:
                plane[...] = self._table[channel, image.pad]
            self._write(
                channel,
                pixels[..., 2 - channel if image.colour == "BGR" else channel],
                plane[rows, columns],
            )
        return values

    def _write(self, channel: int, pixels: Pixels, values: Array) -> None:
        """Fill `values` from one channel's pixels; same as a look-up in the table, but faster."""
        if values.dtype == np.float32:
            mean, sd = np.float32(self._wanted.mean[channel]), np.float32(self._wanted.sd[channel])
            if mean:
                np.divide(np.subtract(pixels, mean, dtype=np.float32), sd, out=values)
            else:
                np.divide(pixels, sd, out=values, dtype=np.float32)
        elif self._shift is not None:
            values[...] = (pixels + self._shift).view(values.dtype)
        else:
            values[...] = np.take(self._table[channel], pixels)


def pixel_table(image: ImageInput, info: TensorInfo) -> Array:
    """Return the tensor value of every pixel value: [3, 256].

    It is in the input's channel order and dtype.

    Raises:
        ConfigError: the input's dtype is neither float nor integer.
    """
    dtype = _dtype(info)
    # Float inputs in float32, as frameworks do; quantised ones in double.
    precision = np.float32 if dtype.kind == "f" else np.float64
    levels: Array = np.arange(256).astype(precision)
    mean, sd = np.array(image.mean, precision)[:, None], np.array(image.sd, precision)[:, None]
    real = (levels - mean) / sd
    if dtype.kind != "f":
        bounds = np.iinfo(dtype)
        real = np.clip(
            np.rint(real / (info.scale or 1.0)) + (info.zero_point or 0), bounds.min, bounds.max
        )
    return np.asarray(real.astype(dtype))


def _shift(table: Array) -> np.uint8 | None:
    """Return the number whose sum with a pixel, modulo 256, is its value in the table.

    It is None if there is no such number.
    """
    if table.dtype.itemsize != 1:
        return None
    first = table.view(np.uint8)[0, 0]
    is_shift = np.array_equal(
        table.view(np.uint8), np.broadcast_to(np.arange(256, dtype=np.uint8) + first, table.shape)
    )
    return first if is_shift else None


def _dtype(info: TensorInfo) -> np.dtype[Any]:
    with suppress(TypeError):
        dtype = np.dtype(info.dtype)
        if dtype.kind in "fiu":
            return dtype
    raise ConfigError(
        f"input {info.name!r} has dtype {info.dtype!r}: photographs can only become float or "
        "integer values of numpy"
    )
