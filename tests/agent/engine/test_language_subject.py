"""Facts about a run of a language model.

They concern exact lengths, other prompts, caches, warm-up by whole queries, and what is checked
afterwards.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import samples
from edgemeter.agent.engine import closed_loop, job
from edgemeter.agent.engine.language_subject import LanguageSubject
from edgemeter.agent.engine.measure import measure
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.engine.stopwatch import Stopwatch
from edgemeter.agent.engine.warm_up import looks_settled, warm_up
from edgemeter.agent.generators import Generated, LoadedGenerator
from edgemeter.agent.generators.replay import ReplayGenerator
from tests.fixtures.run_jobs import brief_case, run_job
from tests.fixtures.timing_world import plan

pytestmark = pytest.mark.usefixtures("played")

RECORDING = {
    "format": "edgemeter-generation-replay",
    "schema": 1,
    "queries": [{"first_ms": 5.0, "steps_ms": [3.0]}],
    "precision": "q8_0",
}


def recorded(folder: Path, **changes: Any) -> Path:
    path = folder / "model.replay.json"
    path.write_bytes(msgspec.json.encode(RECORDING | changes))
    return path


def measured(model: Path, *, idle: bool = False, **settings: Any) -> job.MeasuredRun:
    """Measure a short case of 20 prompt tokens and 6 more in this process."""
    now = time.monotonic_ns()
    case = brief_case(model, prompt_tokens=20, output_tokens=6, **settings)
    return measure(run_job(case, idle=idle, spawned_ns=now), now, lambda _: None)


def subject_of(model: Path, prompt_tokens: int = 20, output_tokens: int = 6) -> LanguageSubject:
    subject = LanguageSubject(
        run_job(brief_case(model, prompt_tokens=prompt_tokens, output_tokens=output_tokens))
    )
    subject.load()
    return subject


def test_a_run_states_lengths_moments_and_rates(tmp_path):
    """As many tokens were generated as were asked for.

    The first takes 5 ms, and each of five more takes 3 ms.
    """
    run = measured(recorded(tmp_path), idle=True, idle_seconds=3.0)
    generation = run.generation
    assert (
        generation.prompt_tokens,
        generation.output_tokens,
        generation.ended_early,
        generation.counts,
    ) == (20, 6, 0, "exact")
    assert run.latency.count == generation.ttft.count == 11
    raw = {series.name: samples.unpack(series) for series in run.samples}
    assert raw["token"].size == 11 * 6
    assert np.array_equal(raw["first_token"], raw["token"][::6])
    assert np.array_equal(raw["latency"], raw["token"][5::6])
    assert generation.ttft.p50_ms == pytest.approx(5.0, abs=0.01)
    assert generation.tpot.p50_ms == pytest.approx(3.0, abs=0.01)
    assert run.latency.p50_ms == pytest.approx(20.0, abs=0.02)
    assert generation.decode_tokens_per_s == pytest.approx(1000 / 3, rel=1e-3)
    assert generation.prefill_tokens_per_s == pytest.approx(20 * 1000 / 5, rel=1e-3)
    assert run.precision == "q8_0"
    assert (run.output_check.compared, run.output_check.differing) == (2, 0)
    assert (
        run.idle_before.end_ns <= run.timed.start_ns < run.timed.end_ns <= run.idle_after.start_ns
    )
    assert [round(idle.length_ns / 1e6) for idle in (run.idle_before, run.idle_after)] == [
        3000,
        3000,
    ]


def test_prompts_are_exact_seeded_and_share_no_beginning():
    """Each query has another first token, and no prompt is one token repeated.

    The same seed gives the same prompts.
    """
    loaded = LoadedGenerator(
        "p",
        "1",
        "cpu",
        0,
        0,
        context_tokens=64,
        text_tokens=np.arange(10, 110, dtype=np.int32),
        first_tokens=(1,),
    )
    prompts = [SyntheticPrompts(loaded, 16, 5).of(number) for number in range(-50, 50)]
    assert {len(prompt) for prompt in prompts} == {16}
    assert {prompt[0] for prompt in prompts} == {1}
    assert len({prompt[1] for prompt in prompts}) == 100
    assert all(len(set(prompt)) > 3 for prompt in prompts)
    assert (
        prompts[57]
        == SyntheticPrompts(loaded, 16, 5).of(7)
        != SyntheticPrompts(loaded, 16, 6).of(7)
    )
    with pytest.raises(ConfigError, match="no room"):
        SyntheticPrompts(loaded, 1, 0)


def test_the_timed_prompts_of_a_case_are_the_same_however_long_the_warm_up_was(tmp_path):
    """A slow and a fast machine time the same prompts, so that answers can be compared."""
    answers = []
    for before in (2, 9):
        subject = subject_of(recorded(tmp_path))
        for _ in range(before):
            Stopwatch(subject).first()
        numbers = closed_loop.run(Stopwatch(subject), plan(queries=3)).numbers.tolist()
        answers.append([subject.answers[number].generated.text for number in numbers])
    assert answers[0] == answers[1]


def test_a_generator_of_texts_gets_texts_that_differ_from_the_start():
    """Where there are no token ids a prompt is words behind the number of its query."""
    loaded = LoadedGenerator(
        "p", "1", "http", 0, 0, context_tokens=64, text_tokens=np.zeros(0, np.int32)
    )
    first, second = (SyntheticPrompts(loaded, 10, 0).of(number) for number in (0, 1))
    assert isinstance(first, str)
    assert isinstance(second, str)
    assert first.split()[0] != second.split()[0]
    assert len(first.split()) == 9


def test_queries_that_end_early_have_the_times_of_their_tokens(tmp_path):
    """The model ends its text after four of six tokens, which are three steps of 3 ms."""
    generation = measured(recorded(tmp_path, end_after_tokens=4)).generation
    assert (generation.ended_early, generation.ttft.count) == (11, 11)
    assert (generation.output_lengths.min_tokens, generation.output_lengths.max_tokens) == (4, 4)
    assert (generation.tpot.count, generation.itl.count) == (11, 33)
    assert generation.decode_tokens_per_s == pytest.approx(1000 / 3, rel=1e-3)


def test_cached_tokens_are_subtracted_and_shown(tmp_path):
    """The prefill rate counts the 10 tokens that were processed in 5 ms."""
    generation = measured(recorded(tmp_path, cached_tokens=10)).generation
    assert generation.cached_tokens == 10
    assert generation.prefill_tokens_per_s == pytest.approx(10 * 1000 / 5, rel=1e-3)


class Forgetful(ReplayGenerator):
    """A replay whose answers are never the same."""

    calls = 0

    def bind(self, prompt, limits):
        """Return a query that answers with its own number."""
        query = super().bind(prompt, limits)

        def other(stamp) -> Generated:
            Forgetful.calls += 1
            return replace(query(stamp), text=str(Forgetful.calls))

        return other


def test_other_tokens_for_the_same_prompt_are_an_output_that_differs(tmp_path, monkeypatch):
    """Greedy generation of one model always gives the same tokens."""
    monkeypatch.setattr("edgemeter.agent.generators.replay.ReplayGenerator", Forgetful)
    run = measured(recorded(tmp_path))
    assert run.output_check.differing == run.output_check.compared == 2


def test_the_warm_up_runs_until_times_have_settled_and_for_two_whole_queries_at_least(tmp_path):
    """Two queries are run even where the limit is over after the first.

    The expected time of a query is their mean: 30 ms and five steps of 2 ms.
    """
    level = warm_up(
        Stopwatch(subject_of(recorded(tmp_path, queries=[{"first_ms": 30.0, "steps_ms": [2.0]}]))),
        0.0,
    )
    assert (level.queries, level.steady, level.query_ns) == (2, True, pytest.approx(40e6, rel=1e-2))
    falling = [{"first_ms": first_ms, "steps_ms": [1.0]} for first_ms in (900.0, 400.0, 100.0)]
    level = warm_up(Stopwatch(subject_of(recorded(tmp_path, queries=falling))), 1.3)
    assert (level.queries, level.steady) == (2, False)
    steady = [{"first_ms": 100.0, "steps_ms": [1.0]}]
    assert warm_up(Stopwatch(subject_of(recorded(tmp_path, queries=steady))), 9.0).queries == 5


def test_times_are_settled_by_their_last_two_or_by_their_halves():
    """Two or three slow queries are judged by the last two, and more as everywhere."""
    for durations_ns, is_settled in [
        ([1000], False),
        ([1000, 1019], True),
        ([1000, 1021], False),
        ([2000, 1000, 1010], True),
        ([1000, 1000, 1050, 1050], False),
        ([*range(2000, 1000, -25)], False),
        ([1000, 1001] * 20, True),
    ]:
        assert looks_settled(durations_ns) == is_settled, f"{durations_ns!r}"
