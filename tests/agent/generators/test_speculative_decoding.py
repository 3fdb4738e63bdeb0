"""Facts about drafts: the text is that without one, its own draft is always right, and another one hardly ever."""

import hashlib
import importlib
import random
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.contract import samples
from edgemeter.agent.engine import generating
from edgemeter.agent.generators import Limits
from edgemeter.agent.generators.llama_engine import LlamaCpp
from edgemeter.agent.generators.speculative_decoding import Speculation
from edgemeter.agent.runtimes import Options
from tests.fixtures.real_prompts import measure_prompts, write_prompts
from tests.fixtures.rows import table_row
from tests.fixtures.run_jobs import one_case, run_job

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
                    assert speculation.steps == model.steps == len(stamps) - 1
                    assert speculation.accepted <= speculation.drafted
                    assert skill < 1 or speculation.accepted == speculation.drafted


def test_an_end_that_was_guessed_takes_a_step_as_every_other():
    """Five tokens and three, the last of which the draft guessed too: two steps; and what it guessed behind the end is no guess."""
    text = [11, 12, 13, 14, 15, 16, 17, 18, END, *range(6)]

    class Recited(Written):
        """A model that goes on with the text wherever it is in it."""

        def after(self, tokens):
            """Return the token of the text at this position."""
            return text[len(tokens) - 2]

    for first, stamps, guesses in ((0, [1, 5, 3], 7), (7, [1, 1], 1)):
        text = text[first:]
        answer, came = text[:1], [1]
        speculation = Speculation(Recited([3, 5]), Recited([3, 5]), 4, 2, ends(30))
        assert speculation.generate(answer, Limits(30), came.append) == "end_of_text"
        with table_row(first):
            assert came == stamps
            assert (speculation.steps, speculation.accepted, speculation.drafted) == (len(stamps) - 1, guesses, guesses)


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
    """In one line: also where there are as many of them, or by far more."""
    make_llama = importlib.import_module("tests.fixtures.generators.make_llama")
    make_llama.write(models / "words.gguf", words=[word[::-1] for word in make_llama.WORDS])
    make_llama.write(models / "more.gguf", words=[*make_llama.WORDS, *(f"word{number}" for number in range(200))])
    for model, draft in ((SHIPPED, "model.gguf"), (models / "model.gguf", "words.gguf"), (models / "model.gguf", "more.gguf")):
        remedy = rf"{draft}.*has other tokens than the model: use a smaller model of the same family"
        with table_row(draft), pytest.raises(ConfigError, match=remedy):
            generated(model, PROMPTS, 4, draft_model=models / draft)


def test_a_table_of_tokens_may_be_filled_up_at_its_end(models):
    """Models of one family have tables of different lengths: a draft guesses no token that the model has not."""
    make_llama = importlib.import_module("tests.fixtures.generators.make_llama")
    make_llama.write(models / "padded.gguf", words=[*make_llama.WORDS, *(f"<pad{number}>" for number in range(100))])
    _, bare = generated(models / "model.gguf", PROMPTS, 100)
    _, drafted = generated(models / "model.gguf", PROMPTS, 100, draft_model=models / "padded.gguf")
    assert [answer.tokens for answer, _ in drafted] == [answer.tokens for answer, _ in bare]
    assert all(answer.drafted_tokens for answer, _ in drafted)


def test_an_answer_may_fill_the_context_to_its_last_token(models):
    """A step never guesses beyond what may still come."""
    for output_tokens in range(CONTEXT - 14, CONTEXT - 8):
        _, bare = generated(models / "model.gguf", PROMPTS[:1], output_tokens)
        for draft in ("same", "other"):
            _, drafted = generated(models / "model.gguf", PROMPTS[:1], output_tokens, draft_model=models / f"{draft}.gguf", draft_tokens=7)
            with table_row(output_tokens, draft):
                assert drafted[0][0].tokens == bare[0][0].tokens
                assert len(drafted[0][0].tokens) == output_tokens


def test_a_model_that_cannot_forget_is_refused_with_the_remedy(models):
    """Recurrent memory keeps no single tokens, so that wrong guesses stay in it."""
    importlib.import_module("tests.fixtures.generators.make_mamba").write(models / "mamba.gguf")
    for model, draft in (("mamba", "model"), ("model", "mamba")):
        with table_row(model, draft), pytest.raises(MeasurementError, match=r"cannot forget .* leave draft_model out"):
            generated(models / f"{model}.gguf", PROMPTS, 20, draft_model=models / f"{draft}.gguf")


def test_settings_that_guess_nothing_or_too_much_are_refused(models):
    """A number of guesses without a model that makes them, and a step that exceeds the batch."""
    with pytest.raises(ConfigError, match="draft_tokens without draft_model"):
        generated(models / "model.gguf", PROMPTS, 4, draft_tokens=2)
    with pytest.raises(ConfigError, match="4 draft_tokens and one more exceeds the batch of 4"):
        generated(models / "model.gguf", PROMPTS, 4, draft_model=models / "same.gguf", batch=4)


def test_a_run_states_what_its_draft_is_and_what_came_of_it(models):
    """Each step of decoding gives five tokens: the first token of an answer is the prefill's. The weights are read once a step."""
    options = {"draft_model": str(models / "same.gguf")}
    settings = {"mode": "rapid", "prompt_tokens": 20, "output_tokens": 21, "options": options}
    case = msgspec.structs.replace(one_case(model=str(models / "model.gguf"), **settings), warm_up_seconds=0.05)
    now = time.monotonic_ns()
    run = generating.measure_generation(run_job(case, idle=False, spawned_ns=now), now, lambda _: None)
    generation = run.generation
    assert (generation.speculative, generation.step_tokens) == ("draft", 5.0)
    assert generation.acceptance == "100% of its guesses are accepted, 5 tokens a step"
    assert (generation.drafted_tokens, generation.accepted_tokens) == (16 * run.latency.count, 16 * run.latency.count)
    assert (generation.stamped_tokens_max, generation.itl) == (5, None)
    assert generation.weight_bandwidth_mb_per_s == pytest.approx(generation.decode_tokens_per_s / 5 * generation.model.weights_mb)
    assert run.runtime.facts["draft_model_sha256"] == hashlib.sha256((models / "same.gguf").read_bytes()).hexdigest()
    assert float(run.runtime.facts["draft_weights_mb"]) == pytest.approx(generation.model.weights_mb, rel=1e-3)


def test_the_tokens_of_a_step_count_the_step_that_ended_a_text(models, tmp_path):
    """Answers of a file end where the text does: a step is a moment after the first."""
    prompts = write_prompts(tmp_path, *({"prompt": letter} for letter in "abcdefghijklmnopqrstuvwxyz"))
    run = measure_prompts(
        models / "model.gguf", options={"draft_model": str(models / "same.gguf")}, prompts=prompts, queries=26, output_tokens=30
    )
    generation = run.generation
    raw = {entry.name: samples.unpack(entry) for entry in run.samples}
    each = np.split(raw["token"], np.cumsum(raw["output_tokens"])[:-1])
    steps = sum(np.unique(moments).size - 1 for moments in each)
    assert generation.ended_early
    assert generation.step_tokens == pytest.approx(sum(moments.size - 1 for moments in each) / steps)
    assert generation.accepted_tokens == generation.drafted_tokens
