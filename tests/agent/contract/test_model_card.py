"""Facts about model cards: what kind of input they promise."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import ImageInput, TensorInput, read_card
from edgemeter.models.catalogue.shipped_models import card_text
from tests.fixtures.rows import table_row

HEAD = 'name = "one"\ntask = "any"\nfamily = "any"\nprecision = "fp32"\n\n[input]\n'
IMAGE = 'height = 8\nwidth = 8\nlayout = "NHWC"\n'
KINDS = {
    IMAGE: ImageInput(height=8, width=8, layout="NHWC"),
    f'kind = "image"\n{IMAGE}': ImageInput(height=8, width=8, layout="NHWC"),
    'kind = "tensor"\n': TensorInput(),
}


@pytest.fixture
def read(tmp_path):
    def card(text):
        (tmp_path / "card.toml").write_text(HEAD + text)
        return read_card(tmp_path / "card.toml")

    return card


def test_a_card_names_the_kind_of_its_input(read):
    """There are two kinds, and a card without one, as all were, is of an image.

    The card is the same after it was written and read again.
    """
    for text, expected in KINDS.items():
        assert read(text).input == expected, f"{text!r}"
        assert read(card_text(read(text)).partition("[input]\n")[2]).input == expected, f"{text!r}"
    assert "kind" not in card_text(read(f'kind = "image"\n{IMAGE}'))


def test_an_input_of_no_kind_is_refused_by_its_key(read):
    """An unknown kind, keys of another kind, and an image without its size are refused."""
    for text in ['kind = "smell"\n', 'kind = "tensor"\nheight = 8\n', "layout = 1\n", "kind = 7\n"]:
        with table_row(text), pytest.raises(ConfigError, match=r"card\.toml.*\$\.input"):
            read(text)


def test_what_needs_an_image_refuses_other_kinds(read):
    """The refusal is one line that names the key."""
    assert read(IMAGE).image.height == 8
    with pytest.raises(
        ConfigError,
        match=r"'one' takes an input of kind 'tensor'.*correct input\.kind in its card$",
    ):
        _ = read('kind = "tensor"\n').image
