"""onnxruntime-genai on the shipped language model, which llama.cpp runs too."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract import model_file
from edgemeter.agent.generators import ChatMessage, Limits, create
from edgemeter.agent.runtimes import Options

pytest.importorskip("onnxruntime_genai")

LANGUAGE = Path(__file__).resolve().parents[3] / "models" / "language"
CONFIG = LANGUAGE / "edgemeter-notes_f16" / "genai_config.json"
QUESTION = "Question: What does the ammeter measure? Answer:"


@pytest.fixture
def genai():
    """Return the loaded generator and what it found."""
    generator = create("genai")
    yield generator, generator.load(CONFIG, Options(), 600)
    generator.close()


@pytest.fixture
def folder(tmp_path):
    """Return a copy of the shipped folder's configuration."""
    shutil.copytree(CONFIG.parent, tmp_path / "genai")
    return tmp_path / "genai" / "genai_config.json"


def test_the_model_is_described_as_in_its_folder(genai):
    """Context, precision, tokens of ordinary text and the beginning of text are the model's own."""
    _, loaded = genai
    assert loaded.architecture == "llama"
    assert loaded.backend == "cpu"
    assert loaded.precision == "fp16"
    assert loaded.trained_context_tokens == 4096
    assert loaded.first_tokens == (1,)
    assert (loaded.text_tokens.min(), loaded.text_tokens.max()) == (259, 511)


def test_it_generates_as_llama_cpp_does(genai):
    """Two engines, one model in 16 bits: the same tokens in, the same tokens out, the same likelihoods to rounding."""
    pytest.importorskip("xllamacpp")
    generator, _ = genai
    other = create("llama")
    other.load(LANGUAGE / "edgemeter-notes_f16.gguf", Options(), 600)
    tokens = generator.encode(QUESTION)
    assert tokens == other.encode(QUESTION)
    # The end of text, which one never chooses and the other goes on behind, is never likely in these notes.
    answers = [engine.bind(tokens, Limits(40))(lambda _: None) for engine in (generator, other)]
    assert answers[0].tokens == answers[1].tokens
    assert answers[0].text == answers[1].text
    assert answers[0].text.startswith(" The electric current.\n")
    text = generator.encode((LANGUAGE / "held_out.txt").read_text()[:1500])
    np.testing.assert_allclose(generator.likelihoods(text), other.likelihoods(text), atol=0.02)
    other.close()


def test_a_stop_text_ends_a_query(genai):
    """The query ends with the token that completes the stop text."""
    generator, _ = genai
    answer = generator.bind(generator.encode(QUESTION), Limits(40, stops=("\n",)))(lambda _: None)
    assert (answer.text, answer.ended) == (" The electric current.\n", "stop")


def test_a_chat_without_a_template_is_unavailable(genai):
    """The shipped model has none."""
    with pytest.raises(UnavailableError, match="chat template cannot be applied"):
        genai[0].encode([ChatMessage("user", "hello")])


def test_threads_are_those_of_the_case(folder):
    """What the file says of threads does not count, and providers in it are the fact that they are."""
    config = json.loads(folder.read_text())
    config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = -7
    folder.write_text(json.dumps(config))
    generator = create("genai")
    assert generator.load(folder, Options(threads=2, backend="cpu"), 64).facts == {"providers": "[]"}
    generator.close()


def test_every_file_of_the_folder_is_part_of_the_models_hash(folder):
    """A changed tokenizer or weight is another model; a card beside them is not."""
    before = model_file.sha256(folder)
    folder.with_name("genai_config.json.toml").write_text("")
    assert model_file.sha256(folder) == before
    folder.with_name("tokenizer.json").write_text("{}")
    assert model_file.sha256(folder) != before


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda path: path.with_name("model.onnx").unlink(), "cannot load"),
        (lambda path: path.with_name("model.onnx").write_bytes(b"no model"), "cannot load"),
        (lambda path: path.with_name("model.onnx").write_bytes(path.with_name("model.onnx").read_bytes()[:5000]), "cannot load"),
        (lambda path: path.with_name("tokenizer.json").unlink(), "cannot load"),
        (lambda path: path.write_text('{"model": {"type": "llama"}}'), "decoder-only"),
        (lambda path: path.write_text('{"model": {"decoder": {}}}'), "context_length is None"),
        (lambda path: path.write_text("[]"), "no part `model`"),
        (lambda path: path.write_text(path.read_text().replace('"llama"', '"unheard-of"')), "cannot load"),
    ],
    ids=["no weights", "foreign", "cut", "no tokenizer", "no decoder", "no context", "array", "architecture"],
)
def test_a_broken_folder_is_one_line(folder, change, match):
    """Nothing but a ConfigError, which names the file."""
    change(folder)
    with pytest.raises(ConfigError, match=match) as refusal:
        create("genai").load(folder, Options(), 64)
    assert str(folder) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_another_name_is_refused(folder):
    """The library looks for one name only."""
    with pytest.raises(ConfigError, match=r"has to be called genai_config\.json"):
        create("genai").load(folder.rename(folder.with_name("other.json")), Options(), 64)
