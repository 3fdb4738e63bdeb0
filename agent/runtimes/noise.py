"""Inputs for a run without data: seeded noise of the model's shapes and dtypes, for timing only."""

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import ImageInput
from edgemeter.agent.contract.record_conditions import DatasetInfo
from edgemeter.agent.runtimes import Array, Loaded, TensorInfo

COUNT = 8


def dataset(seed: int) -> DatasetInfo:
    """Return the data set of such inputs in a record."""
    return DatasetInfo(
        name="noise", sha256=hashlib.sha256(f"noise {seed}".encode()).hexdigest(), images=0
    )


def inputs(loaded: Loaded, seed: int, image: ImageInput | None = None) -> list[list[Array]]:
    """Return a few sets of inputs for the model.

    Floats lie in 0..1, and integers cover their whole range. `image` is the card's input of a model
    of pictures; its height and width replace open ones.

    Raises:
        ConfigError: the model's input shapes are open, and the card does not have them.
    """
    infos = [info if image is None else _sized(info, image) for info in loaded.inputs]
    if not infos or any(size is None for info in infos for size in info.shape[1:]):
        raise ConfigError(
            "the model leaves its input shape open, so no input can be generated: give --data "
            "DIR, or a card FILE.toml beside the model"
        )
    draw = np.random.default_rng(seed)
    return [[_tensor(info, draw) for info in infos] for _ in range(COUNT)]


def _sized(info: TensorInfo, image: ImageInput) -> TensorInfo:
    """Return the input with the card's height and width in place of open ones."""
    usual = (
        (image.height, image.width, 3) if image.layout == "NHWC" else (3, image.height, image.width)
    )
    if len(info.shape) not in (3, 4):
        return info
    sizes = tuple(size or expected for size, expected in zip(info.shape[-3:], usual, strict=True))
    return replace(info, shape=(*info.shape[:-3], *sizes))


def _tensor(info: TensorInfo, draw: np.random.Generator) -> NDArray[np.generic]:
    shape = tuple(1 if size is None else size for size in info.shape)
    dtype = np.dtype(info.dtype)
    if dtype.kind in "iu":
        return draw.integers(
            np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True
        )
    if dtype.kind == "b":
        return draw.random(shape) < 0.5
    return draw.random(shape, dtype=np.float32).astype(dtype)
