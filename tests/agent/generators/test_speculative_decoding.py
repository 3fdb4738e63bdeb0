"""Facts about drafts: the text is that without one, its own draft is always right, and another one hardly ever."""

import importlib
import random
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.generators import Limits
from edgemeter.agent.generators.llama_engine import LlamaCpp
from edgemeter.agent.generators.speculative_decoding import Speculation
from edgemeter.agent.runtimes import Options
from tests.fixtures.rows import table_row

SHIPPED = Path(__file__).resolve().parents[3] / "models" / "language" / "edgemeter-notes_q8_0.gguf"
CONTEXT = 240
END = 7


class Written:
    """A model whose next token follows from all tokens in its cache; a draft is right as often as `skill` says."""

    def __init__(self, prompt, skill=1.0, seed=1):
        self.cache, self.skill, self.seed, self.steps = list(prompt), skill, seed, 0

    def after(self, tokens):
        """Return the token after these."""
        draw = random.Random(f"{self.seed} {tokens}")  # noqa: S311 - the same each time
        token = draw.randrange(20)
        return token if draw.random() < self.skill else (token + 1) % 20

    def step(self, tokens):
        """Return the tokens after each."""
        self.steps += 1
        answers = []
        for token in tokens:
            self.cache.append(token)
            answers.append(self.after(self.cache))
        return answers

    def forget(self, position):
        """Drop the end."""
        assert position <= len(self.cache)
        del self.cache[position:]


def ends(limit):
    """Return what says how an answer ends: with token 7, or at the limit."""
    return lambda answer: "end_of_text" if answer[-1] == END else "length" if len(answer) == limit else None


def plain(prompt, limit):
    """Return the answer without a draft."""
    model, answer = Written(prompt), []
    while not answer or ends(limit)(answer) is None:
        answer.append(model.after([*prompt, *answer]))
    return answer


def test_the_text_is_that_without_a_draft_however_good_it_is():
    """1,200 answers that end at a token or at the limit, drafted by models from never to always right; stamps count each token once."""
    for skill in (0.0, 0.3, 0.8, 1.0):
        for draft_tokens in (1, 2, 4):
            for number in range(100):
                prompt, limit = [number, 3, 5], 1 + number % 17
                answer, stamps = plain(prompt, limit)[:1], [1]
                model, draft = Written(prompt), Written(prompt, skill)
                speculation = Speculation(model, draft, draft_tokens, len(prompt), ends(limit))
                speculation.generate(answer, Limits(limit), stamps.append)
                with table_row(skill, draft_tokens, number):
                    assert answer == plain(prompt, limit)
                    assert sum(stamps) == len(answer)
                    assert max(stamps) <= draft_tokens + 1
                    assert speculation.accepted + model.steps >= len(answer) - 1
                    assert skill < 1 or speculation.accepted >= speculation.drafted - draft_tokens


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return the folder of a model, one of the same weights and one of others."""
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gguf")
    make_llama = importlib.import_module("tests.fixtures.generators.make_llama")
    folder = tmp_path_factory.mktemp("drafts")
    for name, seed in (("model", 20), ("same", 20), ("other", 7)):
        make_llama.write(folder / f"{name}.gguf", seed=seed)
    return folder


def generated(model, prompts, output_tokens, *, ignore_end=True, **extra):
    """Return the answers of the model with these settings, and the sizes of their stamps."""
    engine = LlamaCpp()
    try:
        loaded = engine.load(model, Options(extra={key: str(value) for key, value in extra.items()}), CONTEXT)
        answers = []
        for prompt in prompts:
            stamps = []
            answers.append((engine.bind(prompt, Limits(output_tokens, ignore_end=ignore_end))(stamps.append), tuple(stamps)))
        return loaded, answers
    finally:
        engine.close()


PROMPTS = [[1, *range(70, 78)], [1, 200, 100], [1, *range(30, 60)], [1, 99]]


def test_its_own_draft_accepts_all_and_a_random_one_hardly_any(models):
    """200 tokens, up to the end of the context: five a step from the second on, and the same tokens as without."""
    _, bare = generated(models / "model.gguf", PROMPTS, 200)
    loaded, drafted = generated(models / "model.gguf", PROMPTS, 200, draft_model=models / "same.gguf")
    assert loaded.speculative == "draft"
    assert (loaded.facts["draft_model"], loaded.facts["draft_tokens"]) == ("same.gguf", "4")
    assert [answer.tokens for answer, _ in drafted] == [answer.tokens for answer, _ in bare]
    for answer, stamps in drafted:
        assert answer.accepted_tokens == answer.drafted_tokens == 159
        assert stamps == (1, *[5] * 39, 4)
    _, other = generated(models / "model.gguf", PROMPTS, 200, draft_model=models / "other.gguf", draft_tokens=2)
    assert [answer.tokens for answer, _ in other] == [answer.tokens for answer, _ in bare]
    assert all(answer.accepted_tokens < answer.drafted_tokens / 4 for answer, _ in other)


def test_an_end_of_text_within_accepted_tokens_ends_the_answer(models):
    """No token behind it is counted, whatever the draft guessed."""
    prompts = [[1, first] for first in range(3, 120)]
    _, bare = generated(models / "model.gguf", prompts, 30, ignore_end=False)
    _, drafted = generated(models / "model.gguf", prompts, 30, ignore_end=False, draft_model=models / "same.gguf")
    assert {answer.ended for answer, _ in bare} == {"end_of_text", "length"}
    assert [(answer.tokens, answer.ended) for answer, _ in drafted] == [(answer.tokens, answer.ended) for answer, _ in bare]
    assert all(sum(stamps) == answer.output_tokens for answer, stamps in drafted)


def test_a_draft_of_other_tokens_is_refused_with_the_remedy(models):
    """In one line."""
    with pytest.raises(ConfigError, match=r"model\.gguf.*has other tokens than the model: use a smaller model of the same family"):
        generated(SHIPPED, PROMPTS, 4, draft_model=models / "model.gguf")
