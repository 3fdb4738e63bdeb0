"""Facts about `edgemeter.agent.recognition.wake_word`: the model is known by its shapes alone."""

from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.recognition.recognise import recognise
from edgemeter.agent.runtimes import TensorInfo
from tests.fixtures.vision_factory import make_loaded, tensors


@pytest.mark.parametrize("batch", [1, None])
def test_the_streaming_wake_word_needs_no_card(batch):
    """Thirty frames of forty bands to three scores; what its file does not show stands as a doubt."""
    loaded = make_loaded(tensors((batch, 3)), [TensorInfo("in", (batch, 30, 1, 40), "int8", 1 / 255, -128)])
    card, guesses = recognise(Path("strm_ww_int8.tflite"), loaded)
    assert (card.name, card.task, card.precision, card.output.labels, card.output.detected) == (
        "strm_ww", "wake-word", "int8", ("marvin", "silence", "unknown"), 0,
    )  # fmt: skip
    assert any(" unsure: " in guess and "above 0.95" in guess for guess in guesses)


@pytest.mark.parametrize(("inputs", "outputs"), [((1, 30, 1, 40), (1, 4)), ((1, 49, 10, 1), (1, 3)), ((1, 31, 1, 40), (1, 3))])
def test_other_shapes_are_not_taken_for_it(inputs, outputs):
    """Keyword spotting's, one more class, one more frame."""
    with pytest.raises(ConfigError, match="cannot identify"):
        recognise(Path("m.tflite"), make_loaded(tensors(outputs), tensors(inputs)))
