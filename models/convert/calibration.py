"""The pictures that int8 ranges are measured on: a folder, known by its hash, prepared as the model's card says."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from edgemeter.agent.dataset import Dataset
from edgemeter.agent.recognition.card import Card
from edgemeter.agent.runtimes import Array, TensorInfo
from edgemeter.agent.vision.preprocess import Preprocessor
from edgemeter.models.progress import Tell


@dataclass(frozen=True, slots=True)
class Calibration:
    """Pictures and the model that they are prepared for; `about.input` is that of the source."""

    data: Dataset
    about: Card

    def inputs(self, *, is_channels_last: bool, tell: Tell) -> Iterator[Array]:
        """Yield one float32 array after the other, batch 1, in the layout asked for."""
        wanted = msgspec.structs.replace(self.about.input, layout="NHWC" if is_channels_last else "NCHW")
        size = (wanted.height, wanted.width)
        shape = (1, *size, 3) if is_channels_last else (1, 3, *size)
        preprocessor = Preprocessor(wanted, TensorInfo("calibration", shape, "float32"))
        for place, file in enumerate(self.data.files, 1):
            yield preprocessor.load(file)[0]
            tell("measuring ranges", place, len(self.data.files))

    def also_in(self, scored: Dataset) -> int:
        """Return how many of the pictures are also scored on, by their bytes: what is calibrated on them flatters itself."""
        known = {_sha256(file) for file in scored.files}
        return sum(_sha256(file) in known for file in self.data.files)


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
