"""Facts about conversations: each turn's prompt holds all before it, and its times are those of what was not cached, by a server's log."""

import time
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.recompute import FigureDifference, recompute
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Suite
from edgemeter.agent.engine import generating
from edgemeter.agent.engine.generation_queries import GenerationSubject
from edgemeter.agent.engine.prompts.conversations import Conversations
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.generators import Generated, GeneratorAbilities, Limits, LoadedGenerator
from edgemeter.agent.generators.llama_engine import LlamaCpp
from edgemeter.agent.generators.replay import ReplayGenerator
from edgemeter.agent.runtimes import Options
from edgemeter.agent.session import session
from edgemeter.agent.verdict import judge as verdict
from tests.fixtures.language_server import llama_cpp_server
from tests.fixtures.paced_server import paced_server
from tests.fixtures.record_factory import make_environment
from tests.fixtures.run_jobs import one_case, run_job

SHIPPED = Path(__file__).resolve().parents[4] / "models" / "language" / "edgemeter-notes_q8_0.gguf"
PREFILL_MS, TOKEN_MS, STEP_MS = 5.0, 1.0, 2.0
PROMPT, ANSWER, TURNS, CONVERSATIONS = 20, 6, 3, 2


def measured(model, *, turns=TURNS, **settings):
    """Measure conversations in this process; return the run and the rules that it violates."""
    usual = {"mode": "rapid", "prompt_tokens": PROMPT, "output_tokens": ANSWER, "queries": turns * CONVERSATIONS, "seconds": 0.0}
    case = msgspec.structs.replace(one_case(model, turns=turns, **usual | settings), warm_up_seconds=0.0)
    now = time.monotonic_ns()
    run = generating.measure_generation(run_job(case, spawned_ns=now), now, lambda _: None)
    judged = verdict.judge(run, [], make_environment())
    return run, {reason.partition(":")[0] for reason in judged.reasons}


@pytest.mark.parametrize("prefix_cache", ["on", "off"])
def test_turns_are_as_the_server_logged_them(tmp_path, prefix_cache):
    """A foreign server that takes 1 ms for each token that it has not cached: lengths, cached tokens and times of each turn are its own."""
    with paced_server(tmp_path, prefill_ms=PREFILL_MS, step_ms=STEP_MS, token_ms=TOKEN_MS) as server:
        run, rules = measured(server.file, prefix_cache=prefix_cache)
        log = [entry for entry in server.requests() if len(entry["token_ns"]) == ANSWER]
    timed = log[-TURNS * CONVERSATIONS - 4 : -4]  # Two are repeated twice.
    generation = run.generation
    assert [turn.turn for turn in generation.turns] == [1, 2, 3]
    for index, turn in enumerate(generation.turns):
        of_turn = timed[index::TURNS]
        words = [len(entry["prompt"].split()) for entry in of_turn]
        assert turn.queries == CONVERSATIONS
        assert turn.prompt_tokens == sum(words) / len(words) == (index + 1) * (PROMPT - 1) + index * ANSWER
        assert turn.cached_tokens == sum(entry["cached"] for entry in of_turn) / CONVERSATIONS
        assert turn.cached_tokens == (index * (PROMPT - 1 + ANSWER) if prefix_cache == "on" else 0)
        logged_ms = [(entry["token_ns"][0] - entry["came_ns"]) / 1e6 for entry in of_turn]
        # What the network and a busy machine add is on top.
        assert turn.ttft.min_ms >= min(logged_ms) - 0.05
        assert turn.ttft.min_ms >= PREFILL_MS + TOKEN_MS * (turn.prompt_tokens - turn.cached_tokens) - 0.3
        # The answer of each earlier turn is a part of the prompt.
        assert all(entry["prompt"].count("t0 t1 t2 t3 t4 t5") == index for entry in of_turn)
    assert "cached-prompt" not in rules
    assert run.dataset.name == f"synthetic 3 turns of 20+6 tokens, prefix cache {prefix_cache}, salted, to the end of text, served"


@pytest.mark.needs(module="xllamacpp")
def test_a_cache_that_is_to_be_off_and_works_makes_a_run_invalid():
    """Where the record states it as off, and where a turn had more than its own conversation left."""
    run, _ = measured(SHIPPED, prefix_cache="on")
    as_off = msgspec.structs.replace(run.generation, prefix_cache="off")
    judged = verdict.judge(msgspec.structs.replace(run, generation=as_off), [], make_environment())
    assert any(reason.startswith("cached-prompt") for reason in judged.reasons)
    of_others = tuple(msgspec.structs.replace(turn, cached_tokens=turn.cached_tokens + 30) for turn in run.generation.turns)
    judged = verdict.judge(
        msgspec.structs.replace(run, generation=msgspec.structs.replace(run.generation, turns=of_others)), [], make_environment()
    )
    assert any(reason.startswith("cached-prompt: of turn 1") for reason in judged.reasons)


def test_thoughts_are_no_part_of_the_answers_before_a_turn():
    """A chat's templates leave it out of earlier turns; a thought without an answer is an empty one."""
    loaded = LoadedGenerator("p", "1", "http", 0, 0, 64, np.zeros(0, np.int32), abilities=GeneratorAbilities(chats=True))
    for text, spoken in [("hm</think>Paris", "Paris"), ("<think>hm", ""), ("Paris", "Paris")]:
        prompts = Conversations(ReplayGenerator(), loaded, SyntheticPrompts(loaded, 10, 0), TURNS, keeps_prefix=False)
        prompts.answered(0, Generated((), text, "length", 9, 4, 0))
        assert [message.text for message in prompts.of(1).messages if message.role == "assistant"] == [spoken]


def answers_of(prefix_cache):
    """Return the queries of two conversations of llama.cpp in this process."""
    with closing(LlamaCpp()) as generator:
        loaded = generator.load(SHIPPED, Options(threads=1), TURNS * (PROMPT + ANSWER))
        prompts = Conversations(generator, loaded, SyntheticPrompts(loaded, 12, 0), TURNS, prefix_cache)
        subject = GenerationSubject(generator, loaded, prompts, Limits(ANSWER))
        return [subject.attempt_next(number).answer for number in range(2 * TURNS)]


@pytest.mark.needs(module="xllamacpp")
def test_answers_are_the_same_with_the_cache_as_without():
    """In process every turn has the same tokens; all but the last token of the turn before comes from the cache.

    Prompts are short: of more than 64 tokens in one batch llama.cpp sums otherwise than of its parts, without any cache.
    """
    without, cached = answers_of(prefix_cache=False), answers_of(prefix_cache=True)
    assert [answer.tokens for answer in without] == [answer.tokens for answer in cached]
    assert len({answer.tokens for answer in without}) > 1
    assert [answer.cached_tokens for answer in without] == [0] * 6
    before = [None, *cached[:-1]]
    assert [answer.cached_tokens for answer in cached] == [
        0 if number % TURNS == 0 else before[number].prompt_tokens + ANSWER - 1 for number in range(6)
    ]


@pytest.mark.needs(module="xllamacpp")
def test_the_figures_of_turns_are_recomputed_from_the_record(tmp_path):
    """A record of a session, with and without the cache: two cases, of whose figures none differs from the raw samples."""
    del tmp_path
    cases = [
        one_case(SHIPPED, mode="rapid", prompt_tokens=PROMPT, output_tokens=ANSWER, repeats=1, turns=TURNS, prefix_cache=cache)
        for cache in ("on", "off")
    ]
    cases = [msgspec.structs.replace(case, warm_up_seconds=0.1) for case in cases]
    records = list(session.measure(Suite("s", tuple(cases)), session.DeviceIdentity("bench", "lab"), {}, "none", lambda _: None))
    for record in records:
        assert isinstance(record, RunRecord), record
        assert record.scenario == "conversation"
        assert [turn.queries for turn in record.generation.turns] == [11, 11, 11]
        assert [finding for finding in recompute(record) if isinstance(finding, FigureDifference)] == []
        shifted = tuple(msgspec.structs.replace(turn, prompt_tokens=turn.prompt_tokens + 1) for turn in record.generation.turns)
        wrong = msgspec.structs.replace(record, generation=msgspec.structs.replace(record.generation, turns=shifted))
        assert any(isinstance(finding, FigureDifference) for finding in recompute(wrong))
    assert records[0].case != records[1].case


def test_a_generator_that_keeps_nothing_is_refused_the_cache(tmp_path):
    """What it cannot do is no case of its own."""
    path = tmp_path / "m.replay.json"
    path.write_text('{"format": "edgemeter-generation-replay", "schema": 1, "queries": [{"first_ms": 0.5, "steps_ms": [0.2]}]}')
    with pytest.raises(ConfigError, match="keeps no part of a prompt"):
        measured(path, runtime="replay", prefix_cache="on")


@pytest.mark.slow
def test_the_real_llama_server_keeps_a_conversation_only_where_it_is_to(tmp_path):
    """By its own counts: all before the last token of each turn is cached, or nothing is."""
    pytest.importorskip("xllamacpp")
    with llama_cpp_server(SHIPPED, tmp_path) as path:
        cached, rules = measured(path, prefix_cache="on")
        off, rules_off = measured(path, prefix_cache="off")
    assert [turn.cached_tokens for turn in off.generation.turns] == [0, 0, 0]
    first, second, third = cached.generation.turns
    assert first.cached_tokens <= 1
    assert second.cached_tokens >= first.prompt_tokens
    assert third.cached_tokens >= second.prompt_tokens
    assert "cached-prompt" not in rules | rules_off
