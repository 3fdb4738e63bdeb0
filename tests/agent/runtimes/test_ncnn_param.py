"""Reading an ncnn .param without running it."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import tencent_ncnn
from tests.fixtures.rows import table_row

WHOLE = "7767517\n3 4\nInput in0 0 1 in0 0=640 1=480 2=3\nSplit s 1 2 in0 out1 2\nReLU r 1 1 2 out0 -23330=4,3,2,3,4 0=0.1\n"


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a model and reads it."""

    def read(text):
        path = tmp_path / "model.param"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return tencent_ncnn.read_param(path)

    return read


def test_inputs_outputs_and_their_shapes_are_read(written):
    """Outermost first, as numpy has it: [c, h, w]; outputs in the order of their numbers, not of the lines."""
    param = written(WHOLE)
    assert param.inputs == {"in0": (3, 480, 640)}
    assert list(param.outputs.items()) == [("out0", (4, 3, 2)), ("out1", None)]
    assert param.kinds == {"Input", "Split", "ReLU"}
    assert written(WHOLE.replace(" 0=640 1=480 2=3", "")).inputs == {"in0": None}


def test_names_without_numbers_keep_the_order_of_the_file(written):
    """There is nothing else to go by."""
    text = WHOLE.replace("out1", "scores").replace("out0", "boxes").replace("in0", "data")
    assert (list(written(text).inputs), list(written(text).outputs)) == (["data"], ["scores", "boxes"])


def test_what_is_not_whole_is_refused_in_one_line(written):
    """With what is wrong."""
    for text, words in [
        (WHOLE[:-1], "ends in the middle of a line"),
        ("\n".join(WHOLE.splitlines()[:-1]) + "\n", "announces 3 layers and has 2"),
        (WHOLE.replace("Split s 1 2", "Split s 1 9"), "has too few words: 'Split s 1 9"),
        (WHOLE.replace("0=640", "0=wide"), "invalid literal"),
        (WHOLE.replace("Input", "Output"), "has no Input"),
        ((7767517).to_bytes(4, "little") + bytes(40), "lacks the magic number 7767517: give the text file"),
    ]:
        with table_row(text), pytest.raises(ConfigError, match=words) as refusal:
            written(text)
        assert "\n" not in str(refusal.value), f"{text!r}"
