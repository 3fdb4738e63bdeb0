"""The tiny language model: trained for a few steps, exported, and the same in PyTorch and llama.cpp."""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from edgemeter.agent.generators import create
from edgemeter.agent.quality.scoring import ScoredText, score_generator
from edgemeter.agent.runtimes import Options
from tests.shipped_models import notes
from tests.shipped_models.language_folder import SHIPPED, shipped_index
from tests.shipped_models.vocabulary import learn_vocabulary

pytestmark = [
    pytest.mark.torch,
    pytest.mark.services,
    *(pytest.mark.needs(module=name) for name in ("gguf", "xllamacpp")),
]

# The engine multiplies and caches in 16 bits, and of quantised weights with inputs in 8 bits; PyTorch in 32.
ROUNDING = {"f32": 2e-5, "f16": 1e-4, "q8_0": 3e-4, "q4_0": 5e-4}


def by_engine(name, path, text):
    """Return the perplexity of a file by its engine."""
    generator = create(name)
    loaded = generator.load(path, Options(), 512)
    result = score_generator(generator, loaded, ScoredText(text))
    generator.close()
    return result


@pytest.fixture(scope="module")
def build_language():
    """Return the builder, imported only by tests that run: it imports PyTorch."""
    return importlib.import_module("tests.shipped_models.build_language")


@pytest.fixture(scope="module")
def vocabulary(build_language):
    """Return the shipped model's vocabulary."""
    recipe = shipped_index()["made"]
    text = notes.training_text(recipe["seed"], recipe["training_bytes"])
    return learn_vocabulary(text[: build_language._VOCABULARY_BYTES], recipe["vocabulary"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    "entry", [entry for entry in shipped_index()["files"] if entry["file"].endswith(".gguf")], ids=lambda entry: entry["precision"]
)
def test_llama_cpp_and_pytorch_agree_on_the_perplexity_of_each_shipped_file(entry, vocabulary, build_language):
    """By the C API, by PyTorch with the file's own weights, and as the index says."""
    text = (SHIPPED / "held_out.txt").read_text()
    expected = build_language.score(SHIPPED / entry["file"], text, vocabulary)
    measured = by_engine("llama", SHIPPED / entry["file"], text)
    assert expected.value == pytest.approx(entry["perplexity"], rel=1e-6)
    assert measured.value == pytest.approx(expected.value, rel=ROUNDING[entry["precision"]])
    assert (measured.chunks, measured.counted_tokens, measured.text_tokens) == (
        expected.chunks,
        expected.counted_tokens,
        expected.text_tokens,
    )


def test_in_32_bits_the_two_agree_to_five_digits(tmp_path, vocabulary, build_language):
    """Without rounded weights only the cache in 16 bits and the order of additions are left."""
    path, text = tmp_path / "f32.gguf", (SHIPPED / "held_out.txt").read_text()
    files = build_language.language_files
    files.write_gguf(path, files.weights(files.read_gguf(SHIPPED / "edgemeter-notes_f16.gguf")), vocabulary, "f32")
    assert by_engine("llama", path, text).value == pytest.approx(build_language.score(path, text, vocabulary).value, rel=ROUNDING["f32"])


def test_a_short_build_makes_every_file(tmp_path, build_language):
    """With few steps the files are all there, run in their engines, and are one model."""
    reports = []
    recipe = replace(build_language.LanguageRecipe(), steps=3, training_bytes=60_000, held_out_bytes=8_000, questions=4)
    build_language.build_language(tmp_path, recipe, lambda *step: reports.append(step))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == sorted(
        str(path.relative_to(SHIPPED)) for path in SHIPPED.rglob("*")
    )
    assert reports[-1][1:] == (3, 3)
    text = (tmp_path / "held_out.txt").read_text()
    f16 = by_engine("llama", tmp_path / "edgemeter-notes_f16.gguf", text).value
    assert f16 > 100  # three steps teach next to nothing
    assert not any(str(Path.cwd()).encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
