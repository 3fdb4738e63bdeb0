"""The base of tasks on photographs.

Photographs are image files, pixels within a file of many, or raw pixels of the model's size (MLPerf
Tiny's .bin).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import Card
from edgemeter.agent.datasets.dataset import Dataset
from edgemeter.agent.datasets.items import Item, read_bytes
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.tasks import Inputs
from edgemeter.agent.vision import photograph
from edgemeter.agent.vision.decoders import PhotoFrame
from edgemeter.agent.vision.decoders.size_inputs import size_values
from edgemeter.agent.vision.preprocess import Preprocessor, input_of


class PhotoTask:
    """The base of tasks on photographs, with one call each.

    It keeps the position of each photograph in the input.
    """

    def __init__(self, model: Card, loaded: Loaded, data: Dataset) -> None:
        self._model, self._loaded, self._data = model, loaded, data
        self._input = input_of(model, loaded)
        self._preprocessor = Preprocessor(model.image, self._input)
        self._sizes_asked = size_values(loaded.inputs, model.image.height, model.image.width)
        self._frames: dict[int, PhotoFrame] = {}

    def prepare(self, index: int) -> Sequence[Inputs]:
        """Return the one call for photograph `index`."""
        tensor, self._frames[index] = load_item(self._preprocessor, self._data.items[index])
        return [{self._input.name: tensor, **self._sizes_asked}]


def load_item(preprocessor: Preprocessor, item: Item) -> tuple[NDArray[Any], PhotoFrame]:
    """Return the input tensor of an item, and the position of its photograph in it.

    Raises:
        ConfigError: the item cannot be read, or has raw pixels of another size than the model's.
    """
    if item.array is not None:
        photo = photograph.of_pixels(item.array)
    elif item.kind == "tensor":
        photo = _ready(item, preprocessor.height, preprocessor.width)
    else:
        photo = photograph.read(item.file)
    return preprocessor.load_photo(photo)


def _ready(item: Item, height: int, width: int) -> Any:
    """Return the pixels of a raw file of the model's size.

    They are RGB, row by row from the top left, 8 bits each.
    """
    shape = (height, width, 3)
    content = read_bytes(item.file, "the pixels")
    if len(content) != math.prod(shape):
        raise ConfigError(
            f"{str(item.path)!r} has {len(content)} bytes, and pixels for this model have "
            f"{math.prod(shape)} (height x width x 3: "
            f"{' x '.join(map(str, shape))}): give pixels of that size, or photographs"
        )
    return photograph.of_pixels(np.frombuffer(content, np.uint8).reshape(shape))
