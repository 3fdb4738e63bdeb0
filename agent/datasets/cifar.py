"""CIFAR-10's binary batches: photographs of 32 x 32 pixels with their classes, many in one file.

A photograph is 3,073 bytes: its class, then all red, all green and all blue values, row by row from
the top left.
Source: A. Krizhevsky, https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
"""

import re
from pathlib import Path

import numpy as np

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.links import leads_out
from edgemeter.agent.datasets import GroundTruth
from edgemeter.agent.datasets.class_lists import ClassIndex
from edgemeter.agent.datasets.items import Item, read_bytes

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_SIDE = 32
_RECORD_BYTES = 1 + 3 * _SIDE * _SIDE
_BATCH = re.compile(r"(data_batch_\d|test_batch)(\.bin)?")
# The test batch, without `.bin` in the version for Python.
_TEST = ("test_batch.bin", "test_batch")


class Cifar10:
    """A batch (`--data test_batch.bin`), or the test batch of a folder; no annotations."""

    def recognises(self, folder: Path, annotations: Path | None) -> bool:
        """Return whether it has the name of a batch, or holds the test batch."""
        if annotations is not None:
            return False
        return (
            bool(_BATCH.fullmatch(folder.name))
            if folder.is_file()
            else _test_batch(folder) is not None
        )

    def read(self, folder: Path, _annotations: Path | None) -> GroundTruth:
        path = (_test_batch(folder) or folder / _TEST[0]) if folder.is_dir() else folder
        records = _records(path)
        names = [f"{number:05d}" for number in range(len(records))]
        pixels = records[:, 1:].reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
        items = tuple(
            Item(name, path, "image", array=photo)
            for name, photo in zip(names, pixels, strict=True)
        )
        classes = dict(zip(names, records[:, 0].tolist(), strict=True))
        return GroundTruth(ClassIndex(classes, names=CLASSES), path, items=items)


def _test_batch(folder: Path) -> Path | None:
    paths = (folder / name for name in _TEST)
    return next(
        (path for path in paths if path.is_file() and (path.suffix or not leads_out(path, folder))),
        None,
    )


def _records(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """Return the records of a batch: uint8 [photographs, 3073]."""
    content = read_bytes(path, "the batch")
    if not content or len(content) % _RECORD_BYTES:
        raise ConfigError(
            f"the batch {str(path)!r} has {len(content)} bytes, and is no binary version of "
            f"CIFAR-10, which has {_RECORD_BYTES} per "
            "photograph: give test_batch.bin of cifar-10-binary.tar.gz (the version for Python "
            "is not read: unpickling it can run code)"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, _RECORD_BYTES)
    if records[:, 0].max() >= len(CLASSES):
        first = int(np.argmax(records[:, 0] >= len(CLASSES)))
        raise ConfigError(
            f"the batch {str(path)!r}: photograph {first} has class {records[first, 0]}, "
            f"CIFAR-10 has 0 to {len(CLASSES) - 1}: "
            "download it again"
        )
    return records
