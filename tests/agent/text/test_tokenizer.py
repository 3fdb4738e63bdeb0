"""Text becomes inputs: by name and dtype, padded or cut as stated, passages in windows as BERT's script cuts them."""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.model_card import read_card
from edgemeter.agent.text.tokenizer import TextTokenizer
from tests.fixtures.rows import in_folders, table_row
from tests.fixtures.text_data import place_model
from tests.fixtures.vision_factory import make_loaded, tensors

pytest.importorskip("tokenizers", reason="needs the extra `text`")
NAMES = ("input_ids", "attention_mask", "token_type_ids")


def make_tokenizer(folder, tokens=12, card_lines="", names=NAMES, shape=(None, None), dtype="int64"):
    """Return the tokenizer of a model that declares these inputs."""
    model = place_model(folder, "question-answering.onnx", tokens, card_lines)
    card = read_card(model.with_name(f"{model.name}.toml")).beside(model)
    return TextTokenizer(card, make_loaded(inputs=tensors(*[shape] * len(names), names=names, dtype=dtype)))


def test_a_pair_fills_the_inputs_by_their_names(tmp_path):
    """[CLS] first [SEP] second [SEP], padded; ids, mask and types wherever they stand, as the model wants its integers."""
    for dtype in ["int32", "int64"]:
        for names in [
            NAMES,
            ("input_ids:0", "input_mask:0", "segment_ids:0"),
            ("serving_default_input_word_ids", "x_mask", "input_type_ids"),
        ]:
            with table_row(names, dtype):
                tokenizer = make_tokenizer(tmp_path, names=names[::-1], dtype=dtype)
                window, is_cut = tokenizer.call("the film", "a cup of tea")
                inputs = tokenizer.inputs(window)
                ids, mask, types = (inputs[name] for name in names)
                assert (list(inputs), {array.dtype for array in inputs.values()}, is_cut) == (list(names[::-1]), {np.dtype(dtype)}, False)
                assert ids[0, [0, 3, 8]].tolist() == [2, 3, 3]
                assert mask.tolist() == [[1] * 9 + [0] * 3]
                assert types.tolist() == [[0] * 4 + [1] * 5 + [0] * 3]


def test_a_long_pair_is_cut_from_its_longer_text(tmp_path):
    """Twelve tokens, three of them special: the short text stays."""
    window, is_cut = make_tokenizer(tmp_path).call("the film", "tea " * 30)
    assert len(window.tokens) == 12
    assert is_cut is True
    assert window.types.count(0) == 4
    assert window.types.count(1) == 8


def test_without_padding_each_text_has_its_own_length(tmp_path):
    """And without a number of tokens nothing is cut."""
    tokenizer = make_tokenizer(tmp_path, None, 'padding = "none"\n')
    lengths = [tokenizer.inputs(tokenizer.call(text, None)[0])["input_ids"].shape for text in ("tea", "tea " * 40)]
    assert lengths == [(1, 3), (1, 42)]


def test_a_passage_is_cut_into_windows_as_run_squad_cuts_it(tmp_path):
    """Length, first token and most context of every window, against the loops of google-research/bert written out again."""
    for words, stride in [(3, 4), (7, 4), (8, 4), (23, 4), (23, 1), (23, 100)]:
        with table_row(words, stride):
            tokenizer = make_tokenizer(tmp_path, 12, f"stride_tokens = {stride}\n")
            passage = " ".join(["tea"] * words)
            windows = tokenizer.windows("which colour?", passage)
            room = 12 - 3 - 3
            spans, start = [], 0
            while True:
                length = min(words - start, room)
                spans.append((start, length))
                if start + length == words:
                    break
                start += min(length, stride)
            spans_of_windows = [[span for span in window.offsets if span is not None] for window in windows]
            assert [(inside[0][0] // 4, len(inside)) for inside in spans_of_windows] == spans
            for number, (window, (first, length)) in enumerate(zip(windows, spans, strict=True)):
                for position in range(length):
                    scores = [
                        min(first + position - begin, begin + size - 1 - first - position) + 0.01 * size
                        if begin <= first + position < begin + size
                        else -1
                        for begin, size in spans
                    ]
                    assert window.most_context[5 + position] == (scores.index(max(scores)) == number)


def test_a_question_that_leaves_no_room_is_refused(tmp_path):
    """The card's limit for questions is too high for its length."""
    with pytest.raises(ConfigError, match="leaves none for the passage: lower"):
        make_tokenizer(tmp_path).windows("tea " * 30, "tea")


def test_what_does_not_fit_the_model_is_refused(tmp_path):
    """In one line that names what to correct."""
    for arguments, match in [
        ({"names": ("args_0", "args_1")}, "not clear from their names: write input.inputs"),
        ({"names": ("input_ids", "token_ids")}, "not clear from their names"),
        ({"card_lines": 'inputs = ["ids"]\n'}, "has 3 inputs .* its card names 1"),
        ({"shape": (1, 16)}, r"takes int64 \[1, 16\], its card has 12 tokens"),
        ({"shape": (1, 12, 4)}, "export it with"),
        ({"shape": (1, 12), "card_lines": 'padding = "none"\n'}, "takes 12 tokens always"),
    ]:
        with table_row(arguments), pytest.raises(ConfigError, match=match):
            make_tokenizer(tmp_path, **arguments)


def test_a_spoilt_tokenizer_is_refused(tmp_path):
    """Absent, another file, garbage."""
    for folder, content, match in in_folders(
        tmp_path, [(None, "cannot read the tokenizer"), (b"{}", "has sha256 44136fa"), (b"\xff\xfe", "not UTF-8")]
    ):
        model = place_model(folder, "question-answering.onnx")
        path = folder / "tokenizer.json"
        path.unlink() if content is None else path.write_bytes(content)
        card = read_card(model.with_name(f"{model.name}.toml")).beside(model)
        with table_row(match), pytest.raises(ConfigError, match=match):
            TextTokenizer(card, make_loaded(inputs=tensors((1, 12), names=["ids"], dtype="int32")))


def test_a_file_of_another_form_is_no_tokenizer(tmp_path):
    """JSON with the right hash that the library refuses."""
    model = place_model(tmp_path, "question-answering.onnx")
    (tmp_path / "tokenizer.json").write_bytes(b"{}")
    text = model.with_name(f"{model.name}.toml").read_text()
    hash_line = next(line for line in text.splitlines() if line.startswith("tokenizer_sha256"))
    empty = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    model.with_name(f"{model.name}.toml").write_text(text.replace(hash_line, f'tokenizer_sha256 = "{empty}"'))
    with pytest.raises(ConfigError, match="is no tokenizer"):
        TextTokenizer(
            read_card(model.with_name(f"{model.name}.toml")).beside(model),
            make_loaded(inputs=tensors((1, 12), names=["ids"], dtype="int32")),
        )
