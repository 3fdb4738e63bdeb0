"""Generators are scored: the shipped language model, and servers that tell less or more of a text."""

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.generators import create
from edgemeter.agent.quality.gate import quality_gate
from edgemeter.agent.quality.scoring import ScoredText, score_generator
from edgemeter.agent.runtimes import Options
from tests.fixtures.language_server import llama_server

SHIPPED = Path(__file__).resolve().parents[3] / "models" / "language"
INDEX = msgspec.toml.decode((SHIPPED / "language.toml").read_bytes())
TEXT = (SHIPPED / "held_out.txt").read_text(encoding="utf-8")
needs_llama = pytest.mark.needs(module="xllamacpp")


def perplexity_of(name, path, material):
    """Return the perplexity of a file."""
    with closing(create(name)) as generator:
        return score_generator(generator, generator.load(path, Options(), 640), material)


@needs_llama
def test_quantisation_costs_quality_that_shows():
    """The perplexity of 8 bits is next to that of 16, that of 4 bits visibly higher; both as PyTorch computed them for the index."""
    by_precision = {
        precision: perplexity_of("llama", SHIPPED / f"edgemeter-notes_{precision}.gguf", ScoredText(TEXT))
        for precision in ("f16", "q8_0", "q4_0")
    }
    values = {precision: scored.value for precision, scored in by_precision.items()}
    assert values == pytest.approx({entry["precision"]: entry["perplexity"] for entry in INDEX["files"]}, rel=1e-3)
    assert values["q8_0"] == pytest.approx(values["f16"], rel=0.005)
    assert values["q4_0"] > values["f16"] * 1.005
    assert by_precision["f16"].text_sha256 == INDEX["perplexity"]["text_sha256"]
    assert quality_gate(by_precision["q8_0"], by_precision["f16"]).passed


@pytest.mark.services
def test_a_server_lacks_what_it_does_not_state(tmp_path):
    """How likely the tokens of a text are; it says what is left."""
    server, path = llama_server(), tmp_path / "m.server"
    path.write_text(f'url = "{server.url}"\n')
    with pytest.raises(UnavailableError, match="score the model's file in an engine"):
        perplexity_of("server", path, ScoredText(TEXT))
    server.close()
