"""Facts about CIFAR-10's binary batches.

One file holds many photographs as planes of colour, each with its class.
"""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.cifar import CLASSES
from edgemeter.agent.datasets.dataset import open_folder
from tests.fixtures.cifar_factory import batch

RNG = np.random.default_rng(0)


@pytest.fixture
def pixels():
    return RNG.integers(0, 256, (3, 32, 32, 3), np.uint8)


def test_a_batch_holds_photographs_with_their_classes(tmp_path, pixels):
    """Planes become pixels with the top row first, and the classes have CIFAR-10's names."""
    (tmp_path / "test_batch.bin").write_bytes(batch(pixels, [3, 0, 9]))
    data = open_folder(tmp_path / "test_batch.bin")
    assert [item.name for item in data.items] == ["00000", "00001", "00002"]
    assert (list(data.classes.values()), data.class_names, data.needed) == (
        [3, 0, 9],
        CLASSES,
        (tmp_path / "test_batch.bin",),
    )
    for item, photo in zip(data.items, pixels, strict=True):
        assert np.array_equal(item.array, photo)


def test_of_a_folder_the_test_batch_counts(tmp_path, pixels):
    """The model was trained on the other batches, each of which can be named by itself."""
    for number, name in enumerate(("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin")):
        (tmp_path / name).write_bytes(batch(pixels[number : number + 1], [number]))
    assert list(open_folder(tmp_path).classes.values()) == [2]
    assert open_folder(tmp_path).needed == (tmp_path / "test_batch.bin",)
    assert list(open_folder(tmp_path / "data_batch_2.bin").classes.values()) == [1]


def test_what_is_no_binary_batch_ends_in_one_line(tmp_path, pixels):
    """The version for Python is a pickle, which is not opened.

    A class above 9 and a cut file are named too.
    """
    (tmp_path / "test_batch").write_bytes(b"\x80\x02}q\x01(U\x0bbatch_label")
    with pytest.raises(ConfigError, match=r"test_batch'.*give test_batch\.bin of cifar-10-binary"):
        open_folder(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(batch(pixels, [3, 10, 9]))
    with pytest.raises(ConfigError, match=r"photograph 1 has class 10, CIFAR-10 has 0 to 9"):
        open_folder(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(batch(pixels, [3, 0, 9])[:-1])
    with pytest.raises(ConfigError, match="has 9218 bytes"):
        open_folder(tmp_path)
