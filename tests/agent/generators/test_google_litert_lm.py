"""Facts about the generator for LiteRT-LM, on its real library."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgemeter.agent.base.errors import AnswerError, ConfigError, MeasurementError, UnavailableError
from edgemeter.agent.engine import generation_queries
from edgemeter.agent.engine.scenarios.generation_statistics import tpot_ns
from edgemeter.agent.generators import ChatMessage, Limits, create
from edgemeter.agent.generators.google_litert_lm import LiteRtLm
from edgemeter.agent.runtimes import Options
from tests.fixtures.rows import table_row

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "tests" / "fixtures" / "generators" / "litert-lm.litertlm"
NOTES = ROOT / "models" / "language" / "edgemeter-notes_f16" / "genai_config.json"
TEXTS = ("the board on the bench", "Jonas measures", "Question: what does Ida carry?\nAnswer:")

pytestmark = pytest.mark.needs(module="litert_lm")


@pytest.fixture
def generator():
    """Return a generator with the fixture's model; it is closed at the end."""
    generator = LiteRtLm()
    generator.load(MODEL, Options(), 64)
    yield generator
    generator.close()


def quiet(_: int) -> None:
    """Take no stamp."""


def test_the_librarys_own_counts_and_timings_are_those_of_the_query(generator):
    """The prompt with its begin-of-text token, each token of the answer, and times that fit in what we see."""
    tokens = generator.encode("the board on the bench")
    stamps = []
    answer = generator.bind(tokens, Limits(9))(stamps.append)
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens, answer.ended) == (len(tokens), 9, 0, "length")
    assert (stamps, answer.stamped_tokens) == ([1] * 9, (2, *[1] * 7, 0))
    assert (answer.own.prefilled_tokens, answer.own.decoded_tokens) == (len(tokens), 8)
    assert answer.own.prefill_ms > 0
    assert answer.own.decode_ms > 0


def test_a_stop_text_ends_an_answer(generator):
    """At the piece in which it is complete; what the engine computed in the meantime is none of it."""
    full_text = generator.bind(generator.encode("the board"), Limits(12))(quiet).text
    answer = generator.bind(generator.encode("the board"), Limits(12, stops=(full_text[:3],)))(quiet)
    assert answer.ended == "stop"
    assert full_text.startswith(answer.text)
    assert len(answer.text) < len(full_text)
    assert answer.stamped_tokens == (1,) * answer.output_tokens


def test_tokens_that_no_text_has_are_refused(generator):
    """The library takes texts: without its first token, with half a character, or an id that it does not know."""
    for tokens in ([5, 6], [1, 200, 201], [1, 999], [360]):
        with table_row(tokens), pytest.raises(ConfigError, match="takes texts, and reads that of these"):
            generator.bind(tokens, Limits(2))


def test_a_chat_needs_a_template_in_the_file(generator):
    """Its rendering would be the messages in a row."""
    with pytest.raises(UnavailableError, match="no chat template"):
        generator.encode([ChatMessage("system", "be brief"), ChatMessage("user", "hello")])


def test_a_cut_file_or_an_absent_gpu_is_one_line(tmp_path):
    """With what the library logs."""
    cut = tmp_path / "cut.litertlm"
    for length in (8, 40, 20_000, 100_000, MODEL.stat().st_size - 1):
        cut.write_bytes(MODEL.read_bytes()[:length])
        with table_row(length), pytest.raises(ConfigError, match=r"cannot load .* as a language model") as refusal:
            LiteRtLm().load(cut, Options(), 48)
        assert "\n" not in str(refusal.value)


class OddSession:
    """A session that answers in `pieces`, counts `counted` tokens, or fails with `error`."""

    def __init__(self, pieces=(), counted=0, error=None) -> None:
        self.pieces, self.error = pieces, error
        self.info = SimpleNamespace(
            last_decode_token_count=counted,
            last_prefill_token_count=3,
            last_decode_tokens_per_second=100.0,
            last_prefill_tokens_per_second=6.0,
        )

    def run_prefill(self, contents):
        """Take the text."""

    def run_decode_async(self):
        """Yield the pieces."""
        if self.error:
            raise RuntimeError(self.error)
        yield from (SimpleNamespace(texts=[text]) for text in self.pieces)

    def cancel_process(self) -> None:
        """Go on: what is computed already still comes."""

    def get_benchmark_info(self):
        """Return the counts."""
        return self.info

    def close(self) -> None:
        """Forget it."""


class PlantedSession(OddSession):
    """A session on a planted clock: a step takes `STEP_NS`, and hands over the token of the step before; behind the last is none."""

    STEP_NS = 7_000_000

    def __init__(self, pieces, counted) -> None:
        super().__init__(pieces, counted)
        self.now_ns = 0

    def run_prefill(self, contents):
        """Take as long as ten steps."""
        super().run_prefill(contents)
        self.now_ns += 10 * self.STEP_NS

    def run_decode_async(self):
        """Yield each piece when the next token is there."""
        self.now_ns += self.STEP_NS
        for index, text in enumerate(self.pieces, 1):
            self.now_ns += self.STEP_NS if index < self.info.last_decode_token_count else 1000
            yield SimpleNamespace(texts=[text])


def test_the_time_of_a_token_is_that_of_a_step(generator, monkeypatch):
    """Answers that end by length, by a stop text (at the limit too) or by themselves, of any length; of two tokens it does not show."""
    tokens = generator.encode("the board")
    for count, pieces, counted, limits in (
        *((count, ["a"] * count, count, Limits(count)) for count in (3, 8, 16, 32)),
        (8, ["a"] * 7 + ["b", "a"], 10, Limits(32, stops=("b",))),
        (8, ["a"] * 7 + ["b"], 8, Limits(8, stops=("b",))),
        (8, ["a"] * 8, 9, Limits(32)),
        (2, ["a"] * 2, 2, Limits(2)),
    ):
        with table_row((pieces, limits)):
            session = PlantedSession(pieces, counted)
            monkeypatch.setattr(generator._engine, "create_session", lambda session=session, **_: session)
            monkeypatch.setattr(generation_queries, "time", SimpleNamespace(monotonic_ns=lambda session=session: session.now_ns))
            prompts = SimpleNamespace(answered=lambda *_: None)
            subject = generation_queries.GenerationSubject(generator, generator._found, prompts, limits)
            query = subject.attempt(0, generator.bind(tokens, limits))
            moments = generation_queries.moments_of([query])
            assert query.answer.output_tokens == len(query.token_ns) == count
            assert moments.first_ns == [12 * session.STEP_NS]
            np.testing.assert_allclose(tpot_ns(moments), [session.STEP_NS] if count > 2 else [], rtol=0.01)


def test_tokens_without_a_piece_of_their_own_are_shared_out_and_the_end_is_not_timed(generator, monkeypatch):
    """Two tokens of one character come in one piece; the end of a text shows nothing; the engine's own timings are as it states them."""
    tokens = generator.encode("the board")
    for session, limit, expected in (
        (OddSession(["ab", "cd"], 2), 2, ("length", 2, (2, 0))),
        (OddSession(["abcd", "e"], 3), 3, ("length", 3, (2, 1))),
        (OddSession(["ab", "cd"], 3), 9, ("end_of_text", 2, (1, 1))),
        (OddSession(["abcd", "e"], 5), 9, ("end_of_text", 5, (4, 1))),
        (OddSession(["abcd", "x", "e"], 6), 9, ("stop", 5, (4, 1))),
    ):
        with table_row(expected):
            monkeypatch.setattr(generator._engine, "create_session", lambda session=session, **_: session)
            answer = generator.bind(tokens, Limits(limit, stops=("x",)))(quiet)
            assert (answer.ended, answer.output_tokens, answer.stamped_tokens) == expected
            assert (answer.own.prefill_ms, answer.own.decode_ms) == (500.0, (session.info.last_decode_token_count - 1) * 10.0)


def test_an_answer_without_a_text_fails_alone_and_an_engine_that_fails_ends_the_run(generator, monkeypatch):
    """Real models end at once on some prompts; on bytes that are no text the library itself fails."""
    for session, error, words in (
        (OddSession(), AnswerError, "without a text"),
        (OddSession(error="INTERNAL: Stable text shrunk"), MeasurementError, "LiteRT-LM failed on .*: INTERNAL: Stable text shrunk"),
    ):
        monkeypatch.setattr(generator._engine, "create_session", lambda session=session, **_: session)
        with table_row(words), pytest.raises(error, match=words):
            generator.bind(generator.encode("the board"), Limits(2))(quiet)


@pytest.mark.convert
@pytest.mark.slow
@pytest.mark.needs(module="onnxruntime_genai")
@pytest.mark.needs(module="litert_lm_builder")
@pytest.mark.filterwarnings("ignore")
def test_one_model_has_one_text_in_two_engines(tmp_path):
    """The language model that ships, converted by Google's own tools, generates what onnxruntime-genai generates, from equal tokens."""
    from tests.fixtures.generators.make_litert_lm import LiteRtLmForm, write_litert_lm  # noqa: PLC0415 - imports PyTorch

    write_litert_lm(tmp_path / "notes.litertlm", LiteRtLmForm())
    engines = {"litert-lm": tmp_path / "notes.litertlm", "genai": NOTES}
    answers = []
    for name, model in engines.items():
        generator = create(name)
        generator.load(model, Options(), 128)
        tokens = [generator.encode(text) for text in TEXTS]
        answers.append([(prompt, generator.bind(prompt, Limits(40))(quiet).text) for prompt in tokens])
        generator.close()
    assert answers[0] == answers[1]
