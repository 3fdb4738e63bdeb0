"""Items that are photographs: files of their own, pixels inside a file of many, or pixels that lie ready (MLPerf Tiny's .bin).

And the bases of tasks on photographs, and on every pixel of them.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.datasets.items import Item, read_bytes
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Inputs, Outputs
from edgemeter.agent.vision import photograph
from edgemeter.agent.vision.decoders import PhotoFrame, tamed
from edgemeter.agent.vision.decoders.boxes import taps
from edgemeter.agent.vision.preprocess import Preprocessor, input_of, values_of_first

Floats = NDArray[np.float32]
# Rows of the photograph worked on together: the values of all classes for a whole one may be more than a board's memory.
_BLOCK = 32


class PhotoTask:
    """The base of tasks on photographs: one call each; how a photograph lies in the input is kept by its number."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        self._model, self._loaded, self._data = model, loaded, data
        self._input = input_of(model, loaded)
        self._preprocessor = Preprocessor(model.image, self._input)
        self._frames: dict[int, PhotoFrame] = {}

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the one call for photograph `index`."""
        tensor, self._frames[index] = load_item(self._preprocessor, self._data.items[index])
        return [{self._input.name: tensor}]


def photo_of(item: Item) -> Any:
    """Return the photograph that an item is, as `photograph.read` does: its pixels where they lie inside a file, else its own file."""
    return photograph.read(item.file) if item.array is None else photograph.of_pixels(item.array)


def load_item(preprocessor: Preprocessor, item: Item) -> tuple[NDArray[Any], PhotoFrame]:
    """Return the input tensor of an item, and how its photograph lies in it.

    Raises:
        ConfigError: it cannot be read, or has ready pixels of another size than the model's.
    """
    is_ready = item.kind == "tensor" and item.is_file
    return preprocessor.load_photo(_ready(item, preprocessor.height, preprocessor.width) if is_ready else photo_of(item))


def _ready(item: Item, height: int, width: int) -> Any:
    """Return the pixels in a file that holds the model's size and nothing else: RGB, row by row from the top left, 8 bits each."""
    shape = (height, width, 3)
    content = read_bytes(item.file, "the pixels")
    if len(content) != math.prod(shape):
        raise ConfigError(
            f"{str(item.path)!r} has {len(content)} bytes, and pixels for this model have {math.prod(shape)} (height x width x 3: "
            f"{' x '.join(map(str, shape))}): give pixels of that size, or photographs"
        )
    return photograph.of_pixels(np.frombuffer(content, np.uint8).reshape(shape))


class PixelTask(PhotoTask):
    """Prepares photographs; `_map` is the output of one as float32 [channels, rows, columns]."""

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        targets = list((data.targets or {}).values())
        if data.has_truth and not (targets and all(isinstance(target, Path) for target in targets)):
            raise ConfigError(
                f"model {model.name!r} predicts every pixel, the ground truth of {data.name!r} is that of another task: "
                "give a folder with a map for each photograph (.png, .npy) as annotations"
            )
        super().__init__(model, loaded, data)
        self._truth = [target for target in targets if isinstance(target, Path)]

    def _map(self, calls: Sequence[Outputs], channels: int | None) -> Floats:
        """Return the first output as [channels, rows, columns]; channels that are last come first, none becomes one."""
        values = values_of_first(calls[0], self._loaded)[0]
        if values.ndim == 4 and values.shape[0] == 1:
            values = values[0]
        elif values.ndim == 2:
            values = values[None]
        if values.ndim == 3 and channels is not None:
            if values.shape[0] == channels:
                return tamed(values)
            if values.shape[2] == channels:
                return tamed(np.ascontiguousarray(values.transpose(2, 0, 1)))
        form = "scores of each class, [1, classes, rows, columns]" if channels != 1 else "[1, rows, columns]"
        raise ConfigError(
            f"task {self._model.task} needs an output of {form}, the model {self._model.name!r} gives {list(calls[0][0].shape)}: "
            "correct output.classes or task in its card"
        )

    def _blocks(self, index: int, values: Floats) -> Iterator[tuple[slice, Floats]]:
        """Yield rows of photograph `index` and the output at their pixels, [channels, rows, width], interpolated bilinearly."""
        frame, (_, height, width) = self._frames[index], values.shape
        left_cells, right, across = taps(0, frame.photo_width, frame.scale_x, frame.offset_x, width / frame.input_width, width)
        above, below, down = taps(0, frame.photo_height, frame.scale_y, frame.offset_y, height / frame.input_height, height)
        for begin in range(0, frame.photo_height, _BLOCK):
            rows = slice(begin, min(begin + _BLOCK, frame.photo_height))
            weight, unit = down[rows][:, None], np.float32(1)
            lines = values[:, above[rows]] * (unit - weight) + values[:, below[rows]] * weight
            block: Floats = lines[..., left_cells] * (unit - across) + lines[..., right] * across
            yield rows, block

    def _true_map(self, index: int) -> NDArray[Any]:
        """Return the map of photograph `index`, [height, width].

        Raises:
            ConfigError: it cannot be read, or is of another size than the photograph.
        """
        path, frame = self._truth[index], self._frames[index]
        values = photograph.read_map(path)
        if values.shape != (frame.photo_height, frame.photo_width):
            raise ConfigError(
                f"the map {str(path)!r} has {values.shape[1]} x {values.shape[0]} pixels, its photograph {frame.photo_width} x "
                f"{frame.photo_height} (upright): give the maps of these photographs"
            )
        return values
