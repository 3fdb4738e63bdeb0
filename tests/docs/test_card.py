"""Facts about the page of the model card: each key has its meaning, each way to resize its picture, and the pictures are the code's."""

from typing import get_args

import numpy as np
import pytest
from PIL import Image

from edgemeter.agent.base.field_texts import field_texts
from edgemeter.agent.contract import model_card
from tests.docs.reference.card import PICTURES, RESIZES, TABLES, picture, picture_name


@pytest.mark.parametrize("part", TABLES.values(), ids=lambda part: part.__name__)
def test_every_key_has_its_meaning(part):
    """A new key without a comment would be an empty cell."""
    texts = field_texts(model_card)[part.__name__]
    assert {name: texts[name] for name in part.__struct_fields__ if not texts[name]} == {}


def test_every_kind_of_input_is_on_the_page():
    """Tensors have no key of their own."""
    assert {*get_args(model_card.CardInput)} - {model_card.TensorInput} <= {*TABLES.values()}


def test_every_way_to_resize_has_its_picture():
    """As the code makes it today; what Pillow averages may differ by rounding. `none` changes nothing."""
    assert (*RESIZES, "none") == get_args(model_card.Resize)
    for way in RESIZES:
        with Image.open(PICTURES / picture_name(way)) as committed:
            difference = np.abs(np.asarray(committed.convert("RGB"), np.int16) - np.asarray(picture(way), np.int16))
        assert difference.max() <= 1, f"{way}: write it again: python -m tests.docs.reference.card"
