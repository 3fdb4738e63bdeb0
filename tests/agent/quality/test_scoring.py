"""Generators are scored: the shipped language model in two engines, and a server."""

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.generators import create
from edgemeter.agent.quality.gate import quality_gate
from edgemeter.agent.quality.scoring import read_material, score_generator
from edgemeter.agent.runtimes import Options
from tests.fixtures.language_server import llama_server

SHIPPED = Path(__file__).resolve().parents[3] / "models" / "language"
INDEX = msgspec.toml.decode((SHIPPED / "language.toml").read_bytes())
needs_llama = pytest.mark.needs(module="xllamacpp")


def quality_of(name, path, material):
    """Return how good a file is."""
    with closing(create(name)) as generator:
        return score_generator(generator, generator.load(path, Options(), 640), material)


@pytest.fixture(scope="module")
def material():
    """Return the shipped text, choices and questions."""
    return read_material(*(SHIPPED / name for name in ("held_out.txt", "choices.jsonl", "questions.jsonl")), 512)


@pytest.fixture(scope="module")
def by_precision(material):
    """Return the quality of the shipped GGUF files by precision, as llama.cpp runs them."""
    return {
        precision: quality_of("llama", SHIPPED / f"edgemeter-notes_{precision}.gguf", material) for precision in ("f16", "q8_0", "q4_0")
    }


@needs_llama
@pytest.mark.slow
def test_quantisation_costs_quality_that_shows(by_precision):
    """The perplexity of 8 bits is next to that of 16, that of 4 bits visibly higher; both as PyTorch computed them for the index."""
    values = {precision: quality.perplexity.value for precision, quality in by_precision.items()}
    expected = {entry["precision"]: entry["perplexity"] for entry in INDEX["files"] if "perplexity" in entry}
    assert values == pytest.approx(expected, rel=1e-3)
    assert values["q8_0"] == pytest.approx(values["f16"], rel=0.005)
    assert values["q4_0"] > values["f16"] * 1.005
    assert by_precision["f16"].perplexity.text_sha256 == INDEX["perplexity"]["text_sha256"]


@pytest.mark.slow
@needs_llama
def test_the_model_knows_what_it_was_taught(by_precision):
    """It answers its questions word by word, and chooses far better than by chance (1 of 4)."""
    assert by_precision["f16"].answers.exact_match > 0.9
    assert by_precision["f16"].choices.acc > 0.6


@pytest.mark.slow
@needs_llama
def test_the_gate_compares_a_quantised_file_with_its_source(by_precision):
    """Eight bits pass on every figure."""
    gate = quality_gate(by_precision["q8_0"], by_precision["f16"])
    assert gate.passed
    assert [check.figure for check in gate.checks] == ["perplexity", "acc", "acc_norm", "exact_match", "f1"]


@pytest.mark.slow
@needs_llama
@pytest.mark.needs(module="onnxruntime_genai")
def test_two_engines_give_one_model_the_same_quality(by_precision, material):
    """The ONNX folder and the GGUF file in 16 bits."""
    quality = quality_of("genai", SHIPPED / "edgemeter-notes_f16" / "genai_config.json", material)
    assert quality.perplexity.value == pytest.approx(by_precision["f16"].perplexity.value, rel=1e-4)
    assert quality.perplexity.bits_per_byte == pytest.approx(by_precision["f16"].perplexity.bits_per_byte, rel=1e-4)
    assert quality.answers == by_precision["f16"].answers
    assert quality.choices.acc == pytest.approx(by_precision["f16"].choices.acc, abs=0.02)


def test_a_server_is_scored_by_questions_only(tmp_path):
    """It gives no likelihoods: a text is refused with what to do, questions are answered."""
    server = llama_server()
    path = tmp_path / "one.server"
    path.write_text(f'url = "{server.url}"')
    questions = read_material(None, None, SHIPPED / "questions.jsonl", 512)
    assert quality_of("server", path, questions).answers.exact_match == 0.0
    with pytest.raises(UnavailableError, match="llama-server gives no likelihoods"):
        quality_of("server", path, read_material(SHIPPED / "held_out.txt", None, None, 512))
    server.close()


def test_wrong_material_is_one_line(tmp_path):
    """Nothing to score with, and a text that is none."""
    with pytest.raises(ConfigError, match="nothing to score with"):
        read_material(None, None, None, 512)
    (tmp_path / "text").write_bytes(b"\xff")
    for path in (tmp_path / "text", tmp_path / "absent"):
        with pytest.raises(ConfigError, match="cannot read the text"):
            read_material(path, None, None, 512)
