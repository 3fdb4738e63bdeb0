"""Facts about runs on questions.

Each question is asked, scored and named; lengths differ, and every figure is right all the same.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent.bundle.recompute import recompute
from edgemeter.agent.contract.figures import FIGURES
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.generators import Chat, Generated, GeneratorAbilities
from edgemeter.agent.session import session
from tests.fixtures.played_servers import PlayedTextServer, measure_text
from tests.fixtures.played_time import play_time
from tests.fixtures.questions import measure_questions, questions_case, write_questions
from tests.fixtures.record_factory import make_energy
from tests.fixtures.run_jobs import in_this_process

PREFILL_MS_PER_TOKEN = 0.05
LENGTHS = (10, 20, 40, 90)


def replayed(folder, **changes):
    """Write a recording whose prompts take 50 us a token.

    Its answers spell the sum of the prompt's bytes.
    """
    path = folder / "model.replay.json"
    recording = {
        "format": "edgemeter-generation-replay",
        "schema": 1,
        "queries": [{"first_ms": 0.5, "steps_ms": [0.2]}],
    }
    path.write_text(
        json.dumps(recording | {"prefill_ms_per_token": PREFILL_MS_PER_TOKEN} | changes)
    )
    return path


@pytest.fixture
def played(monkeypatch):
    in_this_process(monkeypatch)
    return play_time(monkeypatch)


def recorded(model, **settings):
    suite = Suite("s", (questions_case(model, **settings),))
    (record,) = session.measure(
        suite, session.DeviceIdentity("bench", "lab"), {}, "no power sensor", lambda _: None
    )
    assert isinstance(record, RunRecord), record
    return record


@pytest.mark.usefixtures("played")
def test_prompts_of_other_lengths_have_a_distribution_and_right_rates(tmp_path):
    """The rate of the prefill is all tokens over all time, and not that of the longest prompt.

    It is recomputed from the record in the same way.
    """
    record = recorded(
        replayed(tmp_path),
        questions=write_questions(
            tmp_path, *({"prompt": "x" * length, "answer": "y"} for length in LENGTHS)
        ),
        queries=4,
    )
    generation = record.generation
    assert generation.prompt_tokens == 90
    lengths = generation.prompt_lengths
    assert (lengths.min_tokens, lengths.mean_tokens, lengths.max_tokens) == (10, 40.0, 90)
    took_s = sum(0.5 + PREFILL_MS_PER_TOKEN * length for length in LENGTHS) / 1e3
    assert generation.prefill_tokens_per_s == pytest.approx(sum(LENGTHS) / took_s, rel=5e-3)
    assert recompute(record)[1] == ()


@pytest.mark.usefixtures("played")
def test_a_record_names_the_file_and_holds_no_text_of_it(tmp_path):
    """The record states name, hash, number, and that there was no template to apply.

    With other right answers it is other data.
    """
    questions = write_questions(
        tmp_path,
        {"prompt": "A secret question", "answer": "4711"},
        {"prompt": "Another", "answer": "x"},
    )
    run = measure_questions(replayed(tmp_path), questions=questions)
    assert run.generation.prompts == "questions.jsonl"
    assert run.generation.prompts_sha256 == hashlib.sha256(Path(questions).read_bytes()).hexdigest()
    assert (
        run.dataset.name
        == "2 questions of questions.jsonl, no template, 6 tokens, to the end of text"
    )
    assert run.dataset.images == 2
    assert b"secret" not in msgspec.json.encode(run)
    other = write_questions(
        tmp_path,
        {"answer": "4711", "prompt": "A secret question"},
        {"prompt": "Another", "answer": "y"},
    )
    assert (
        measure_questions(replayed(tmp_path), questions=other).dataset.sha256 != run.dataset.sha256
    )


@pytest.mark.usefixtures("played")
def test_every_question_is_asked_in_an_order_of_the_seed_and_scored(tmp_path):
    """There are more questions than a mode has queries, and half of the answers are right."""
    entries = []
    for number in range(40):
        prompt = f"Question {number:02}"
        tokens = [(sum(prompt.encode()) + index) % 256 for index in range(6)]
        answer = "".join(chr(32 + token % 95) for token in tokens)
        entries.append(
            {"prompt": prompt, "answer": "z" + answer.strip() + "z" if number % 2 else answer}
        )
    record = recorded(replayed(tmp_path), questions=write_questions(tmp_path, *entries))
    assert record.latency.count == 40
    accuracy = record.accuracy
    assert (accuracy.metric, accuracy.value, accuracy.images) == ("exact_match", 0.5, 40)
    assert accuracy.low < 0.5 < accuracy.high
    assert len(accuracy.without_parts) == 20
    # A request of 300 mJ, of which one in two is right, costs 600 mJ a correct answer.
    figure = next(entry for entry in FIGURES if entry.name == "energy_correct_answer_gross_mj")
    assert figure.value(record) is None
    assert figure.value(
        msgspec.structs.replace(record, energy=make_energy(gross_mj=300.0))
    ) == pytest.approx(600.0)


class TextsOnly(PlayedTextServer):
    """A server that takes texts, and chats to which it applies its own template.

    It reports no tokens.
    """

    def load(self, _model, _options, context_tokens):
        able = GeneratorAbilities(counts="usage", chats=True, ignores_end=False, is_local=False)
        loaded = super().load(_model, _options, context_tokens)
        return replace(loaded, text_tokens=np.zeros(0, np.int32), abilities=able)

    def bind(self, prompt, _limits):
        """Return a query that is answered by `Paris`."""

        def query(stamp):
            self.prompts.append(prompt)
            stamp(1)
            return Generated("Paris", "end_of_text", 9, 1, 0)

        return query


@pytest.mark.usefixtures("played")
def test_the_texts_that_a_server_is_sent_differ_from_run_to_run(monkeypatch):
    """No cache can hold a text that was never sent before."""
    sent = []
    for _ in range(2):
        server = TextsOnly()
        run = measure_text(monkeypatch, server, prompt_tokens=12, queries=3)
        assert "salted" in run.dataset.name
        sent.append(set(server.prompts))
    assert not sent[0] & sent[1]


@pytest.mark.usefixtures("played")
def test_a_server_of_chats_gets_messages_and_is_scored(monkeypatch, tmp_path):
    """The server applies its own template to them, and the record states it."""
    server = TextsOnly()
    questions = write_questions(tmp_path, {"prompt": "The capital of France?", "answer": "Paris"})
    run = measure_text(monkeypatch, server, questions=questions, queries=3)
    assert run.accuracy.value == 1.0
    assert "chat template" in run.dataset.name
    assert set(server.prompts) == {Chat("The capital of France?")}
