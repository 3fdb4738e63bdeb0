"""Generators are scored: the shipped language model in two engines, and a server."""

import json
import math
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.generators import create
from edgemeter.agent.quality.gate import quality_gate
from edgemeter.agent.quality.multiple_choice import ChoiceItem
from edgemeter.agent.quality.scoring import Material, read_material, score_file, score_generator
from edgemeter.agent.quality.short_answers import Question
from edgemeter.agent.runtimes import Options
from tests.fixtures.language_server import LanguageServer, Reply, events, llama_server

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


def test_a_server_is_scored_by_questions_only(tmp_path):
    """It gives no likelihoods: a text is refused with what to do, questions are answered."""
    server = llama_server()
    path = tmp_path / "one.server"
    path.write_text(f'url = "{server.url}"')
    questions = read_material(None, None, SHIPPED / "questions.jsonl", 512)
    assert quality_of("server", path, questions).answers.exact_match == 0.0
    with pytest.raises(
        UnavailableError, match="llama-server tells how likely a token is only where it generates it: score with --questions"
    ):
        quality_of("server", path, read_material(SHIPPED / "held_out.txt", None, None, 512))
    server.close()


def test_an_empty_answer_is_a_wrong_one_and_ends_nothing(tmp_path):
    """The model has nothing to say to the second question; the first counts."""
    something, nothing = ([{"choices": [{"text": text, "finish_reason": "stop"}]}] for text in (" blue", ""))
    server = LanguageServer(
        {
            "/v1/models": lambda _: Reply({"data": [{"id": "m"}]}),
            "/v1/completions": lambda content: events(*(nothing if "second" in content["prompt"] else something)),
        }
    )
    questions = tuple(Question(id=name, prompt=f"the {name} question", answers=("blue",)) for name in ("first", "second"))
    answers = quality_of("server", server_file(tmp_path, server), Material(None, (), questions, 512)).answers
    assert answers.exact_match == 0.5
    server.close()


def test_wrong_material_is_one_line(tmp_path):
    """Nothing to score with, and a text that is none."""
    with pytest.raises(ConfigError, match="nothing to score with"):
        read_material(None, None, None, 512)
    (tmp_path / "text").write_bytes(b"\xff")
    for name, why in (("text", "text' is not UTF-8 text"), ("absent", "cannot read the text .*absent")):
        with pytest.raises(ConfigError, match=why):
            read_material(tmp_path / name, None, None, 512)


def echoing(logprobs_of):
    """Return a server with OpenAI's interface that echoes a prompt with what `logprobs_of` returns for its words, and one word more."""

    def complete(content):
        words = re.findall(r" ?[^ ]+", content["prompt"])
        offsets = np.cumsum([0, *map(len, words)]).tolist()
        echoed = {"tokens": [*words, " x"], "token_logprobs": [None, *logprobs_of(words)[1:], -9.0], "text_offset": offsets}
        return Reply({"choices": [{"text": "".join(words) + " x", "logprobs": echoed}]} if content.get("echo") else {"choices": []})

    answer = events({"choices": [{"text": " blue", "finish_reason": "stop"}]})
    routes = {"/v1/completions": lambda content: complete(content) if content.get("echo") else answer}
    return LanguageServer(routes | {"/v1/models": lambda _: Reply({"data": [{"id": "m"}]})})


def server_file(folder, server):
    """Return the server's file."""
    path = folder / "m.server"
    path.write_text(f'url = "{server.url}"\nserver = "openai"\nmodel = "m"\n')
    return path


def test_choices_are_scored_by_what_a_server_echoes(tmp_path):
    """Only the words of the choice count, not those of the prompt nor the generated one: by hand -3 - 1 against -2 - 2.5, and -2 alone."""
    values = {" red": -2.0, " blue": -3.0, " sky": -1.0, " sea": -2.5}
    server = echoing(lambda words: [values.get(word, -50.0) for word in words])
    items = (
        ChoiceItem(id="1", prompt="The sky is", choices=("blue sky", "red sea"), answer=0),
        ChoiceItem(id="2", prompt="A rose is ", choices=("blue", "red"), answer=1),
        ChoiceItem(id="3", prompt="A rose is", choices=("blue", "red"), answer=0),
    )
    quality = quality_of("server", server_file(tmp_path, server), Material(None, items, (), 512))
    assert quality.choices.acc == pytest.approx(2 / 3)
    server.close()


def test_a_server_lacks_what_it_does_not_state(tmp_path):
    """Tokens of a text, and the likelihood of a prompt where it does not echo; each in one line with what is left."""
    server = echoing(lambda words: [-1.0] * len(words))
    path = server_file(tmp_path, server)
    with pytest.raises(UnavailableError, match="does not tell the tokens of a text, which a perplexity needs: leave --text out"):
        quality_of("server", path, Material("A text.", (), (), 512))
    server.routes["/v1/completions"] = lambda content: (
        Reply({"error": {"message": "echo is not supported"}}, status=400)
        if content.get("echo")
        else events({"choices": [{"text": " blue", "finish_reason": "stop"}]})
    )
    item = ChoiceItem(id="1", prompt="The sky is", choices=("blue", "red"), answer=0)
    with pytest.raises(UnavailableError, match=r"how likely a prompt is \(echo is not supported\)"):
        quality_of("server", path, Material(None, (item,), (), 512))
    question = Question(id="1", prompt="The sky is", answers=("blue",))
    assert quality_of("server", path, Material(None, (), (question,), 512)).answers.exact_match == 1.0
    server.close()


@needs_llama
def test_the_first_items_and_chunks_are_those_of_the_whole_file(material):
    """Two of each: the losses of the first two chunks, and so many items."""
    files = [SHIPPED / name for name in ("held_out.txt", "choices.jsonl", "questions.jsonl")]
    first = quality_of("llama", SHIPPED / "edgemeter-notes_q4_0.gguf", read_material(*files, 512, 2))
    assert (first.perplexity.chunks, first.choices.items, first.answers.items) == (2, 2, 2)
    entire = quality_of("llama", SHIPPED / "edgemeter-notes_q4_0.gguf", replace(material, choices=(), questions=()))
    assert first.perplexity.chunk_losses == entire.perplexity.chunk_losses[:2]
    assert first.perplexity.value == pytest.approx(math.exp(np.mean(first.perplexity.chunk_losses)))


@pytest.mark.needs(module="onnxruntime_genai")
def test_long_items_are_counted_in_tokens(tmp_path):
    """An item of more bytes than the model has room for tokens, and far fewer tokens."""
    words = "The ammeter measures the electric current. " * 120
    path = tmp_path / "long.jsonl"
    path.write_text(json.dumps({"id": "1", "prompt": words, "choices": ["It", "Yes"], "answer": 0}) + "\n")
    model = SHIPPED / "edgemeter-notes_f16" / "genai_config.json"
    assert len(words) > json.loads(model.read_text())["model"]["context_length"]
    assert score_file(model, "genai", 1, read_material(None, path, None, 512)).choices.items == 1
