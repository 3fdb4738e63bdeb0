"""Facts about a run of a language model: exact lengths, other prompts, caches, warm-up by whole queries, what is checked afterwards."""

import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.contract import samples
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import generating, job, request_loops
from edgemeter.agent.engine.generation_queries import GenerationSubject
from edgemeter.agent.engine.prompts.synthetic import SyntheticPrompts
from edgemeter.agent.engine.request_loops import run_queries
from edgemeter.agent.generators import Generated, Limits, LoadedGenerator
from edgemeter.agent.generators.replay import ReplayGenerator
from edgemeter.agent.runtimes import Options
from tests.fixtures.run_jobs import one_case, run_job

TINY = Path(__file__).resolve().parents[2] / "fixtures" / "generators" / "llama.gguf"
RECORDING = {
    "format": "edgemeter-generation-replay",
    "schema": 1,
    # Long beside what a busy machine takes from a process at a time, which would make all tokens of an answer one moment.
    "queries": [{"first_ms": 5.0, "steps_ms": [3.0]}],
    "weights_mb": 2.0,
    "precision": "q8_0",
}


def recorded(folder: Path, **changes: Any) -> Path:
    """Write a recording with these changes."""
    path = folder / "model.replay.json"
    path.write_bytes(msgspec.json.encode(RECORDING | changes))
    return path


def case_of(model: Path, **settings: Any) -> Case:
    """Return a short case of 20 prompt tokens and 6 more."""
    merged = {"model": str(model), "mode": "rapid", "prompt_tokens": 20, "output_tokens": 6} | settings
    return msgspec.structs.replace(one_case(**merged), warm_up_seconds=0.05)


def measured(model: Path, *, idle: bool = False, **settings: Any) -> job.MeasuredRun:
    """Measure a case in this process."""
    now = time.monotonic_ns()
    return generating.measure_generation(run_job(case_of(model, **settings), idle=idle, spawned_ns=now), now, lambda _: None)


def subject_of(model: Path, prompt_tokens: int = 20, output_tokens: int = 6) -> GenerationSubject:
    """Return a replay that is loaded, with synthetic prompts."""
    generator = ReplayGenerator()
    loaded = generator.load(model, Options(), prompt_tokens + output_tokens)
    return GenerationSubject(generator, loaded, SyntheticPrompts(loaded, prompt_tokens, 0), Limits(output_tokens))


def test_a_run_states_lengths_moments_and_rates(tmp_path):
    """What was asked for is what was generated, and every moment is kept."""
    run = measured(recorded(tmp_path, own_ratio=1.0))
    generation = run.generation
    assert generation is not None
    assert generation.prompt_tokens == 20
    assert generation.output_tokens == 6
    assert generation.ended_early == 0
    assert generation.counts == "exact"
    assert run.latency.count == generation.ttft.count == 11
    raw = {series.name: samples.unpack(series) for series in run.samples}
    assert raw["token"].size == 11 * 6
    assert np.array_equal(raw["first_token"], raw["token"][::6])
    assert np.array_equal(raw["latency"], raw["token"][5::6])
    assert generation.ttft.min_ms >= 1.0
    assert generation.tpot is not None
    assert generation.tpot.mean_ms == pytest.approx((raw["latency"] - raw["first_token"]).mean() / 5 / 1e6, rel=1e-4)
    assert generation.decode_tokens_per_s == pytest.approx(11 * 5 / (raw["latency"] - raw["first_token"]).sum() * 1e9)
    assert generation.prefill_tokens_per_s == pytest.approx(11 * 20 / raw["first_token"].sum() * 1e9)
    assert generation.weight_bandwidth_mb_per_s == pytest.approx(2.0 * generation.decode_tokens_per_s)
    assert generation.own_decode_tokens_per_s == pytest.approx(1000 / 3.0)
    assert run.precision == "q8_0"
    assert run.output_check.compared == run.output_check.identical == 2


def test_prompts_are_exact_seeded_and_share_no_beginning():
    """Each query has another first token, no prompt is one token repeated, and the same seed gives the same prompts."""
    loaded = LoadedGenerator("p", "1", "cpu", 0, 0, context_tokens=64, text_tokens=np.arange(10, 110, dtype=np.int32), first_tokens=(1,))
    prompts = [SyntheticPrompts(loaded, 16, 5).of(number) for number in range(-50, 50)]
    assert {len(prompt) for prompt in prompts} == {16}
    assert {prompt[0] for prompt in prompts} == {1}
    assert len({prompt[1] for prompt in prompts}) == 100
    assert all(len(set(prompt)) > 3 for prompt in prompts)
    assert prompts[57] == SyntheticPrompts(loaded, 16, 5).of(7) != SyntheticPrompts(loaded, 16, 6).of(7)
    with pytest.raises(ConfigError, match="no room"):
        SyntheticPrompts(loaded, 1, 0)


def test_the_timed_prompts_of_a_case_are_the_same_however_long_the_warm_up_was(tmp_path):
    """Runs on a slow and a fast machine time the same prompts, so that their answers can be compared."""
    answers = []
    for before in (2, 9):
        subject = subject_of(recorded(tmp_path))
        for _ in range(before):
            subject.warm()
        answers.append([query.answer.tokens for query in run_queries(subject, 3, 0.0).queries])
    assert answers[0] == answers[1]


def test_a_generator_of_texts_gets_texts_that_differ_from_the_start():
    """Where there are no token ids a prompt is words behind the number of its query."""
    loaded = LoadedGenerator("p", "1", "http", 0, 0, context_tokens=64, text_tokens=np.zeros(0, np.int32))
    first, second = (SyntheticPrompts(loaded, 10, 0).of(number) for number in (0, 1))
    assert isinstance(first, str)
    assert isinstance(second, str)
    assert first.split()[0] != second.split()[0]
    assert len(first.split()) == 9


def test_queries_that_end_early_have_the_times_of_their_tokens(tmp_path):
    """The model ends its text after four of six tokens: three steps of .2 ms."""
    generation = measured(recorded(tmp_path, end_after_tokens=4)).generation
    assert generation is not None
    assert (generation.ended_early, generation.ttft.count) == (11, 11)
    assert (generation.output_lengths.min_tokens, generation.output_lengths.max_tokens) == (4, 4)
    assert generation.tpot.count == 11
    assert generation.itl.count == 33
    assert generation.decode_tokens_per_s == pytest.approx(1000 / generation.tpot.mean_ms, rel=1e-6)


def test_cached_tokens_are_subtracted_and_shown(tmp_path):
    """Prefill counts what was processed."""
    run = measured(recorded(tmp_path, cached_tokens=10))
    generation = run.generation
    assert generation is not None
    assert generation.cached_tokens == 10
    spent_ns = next(samples.unpack(series) for series in run.samples if series.name == "first_token").sum()
    assert generation.prefill_tokens_per_s == pytest.approx(11 * 10 / spent_ns * 1e9)


class Forgetful(ReplayGenerator):
    """A replay whose answers are never the same."""

    calls = 0

    def bind(self, prompt, limits):
        """Return a query that answers with its own number."""
        query = super().bind(prompt, limits)

        def other(stamp) -> Generated:
            Forgetful.calls += 1
            return Generated((Forgetful.calls,), "", "length", len(prompt), limits.output_tokens, 0, own=query(stamp).own)

        return other


def test_other_tokens_for_the_same_prompt_are_an_output_that_differs(tmp_path, monkeypatch):
    """Greedy generation repeats itself; what does not is no greedy generation of one model."""
    monkeypatch.setattr("edgemeter.agent.generators.replay.ReplayGenerator", Forgetful)
    run = measured(recorded(tmp_path))
    assert run.output_check.differing == run.output_check.compared == 2


class Silent(ReplayGenerator):
    """A replay that gives nothing."""

    def bind(self, prompt, limits):
        """Return a query without a stamp."""
        return lambda _: Generated((), "", "end_of_text", len(prompt), 0 * limits.output_tokens, 0)


def test_a_query_without_a_token_fails_in_one_line(tmp_path, monkeypatch):
    """There is no TTFT without a token."""
    monkeypatch.setattr("edgemeter.agent.generators.replay.ReplayGenerator", Silent)
    with pytest.raises(MeasurementError, match="no token"):
        measured(recorded(tmp_path))


def test_the_warm_up_runs_at_least_two_whole_queries(tmp_path):
    """Even where the limit is over after the first, and the expected time of a query is their mean."""
    level, query_s = request_loops.warm_up(subject_of(recorded(tmp_path, queries=[{"first_ms": 30.0, "steps_ms": [2.0]}])), 0.0)
    assert level.queries == 2
    assert query_s >= 0.04


def test_times_are_settled_by_their_last_two_or_by_their_halves():
    """Two or three slow queries are judged by the last two, more as everywhere."""
    for durations_ns, is_settled in [
        ([1000], False),
        ([1000, 1019], True),
        ([1000, 1021], False),
        ([2000, 1000, 1010], True),
        ([1000, 1000, 1050, 1050], False),
        ([*range(2000, 1000, -25)], False),
        ([1000, 1001] * 20, True),
    ]:
        assert request_loops.has_settled(durations_ns) == is_settled, f"{durations_ns!r}"


def test_llama_is_measured_from_its_file(tmp_path):
    """The tiny model runs through all of it, with its own rates and what its header holds."""
    pytest.importorskip("xllamacpp")
    model = tmp_path / "tiny.Q4_K_M.gguf"
    shutil.copy(TINY, model)
    run = measured(model)
    generation = run.generation
    assert generation is not None
    # All quantisations of a model share its name; the type is what the header says.
    assert (run.model.name, run.precision) == ("tiny", "q8_0")
    assert generation.model.architecture == "llama"
    assert generation.model.quantisation is not None
    assert generation.model.quantisation.file_type == "Q8_0"
    assert generation.own_decode_tokens_per_s is not None
    assert generation.decode_tokens_per_s is not None
    assert generation.own_decode_tokens_per_s >= generation.decode_tokens_per_s
    assert generation.encode_ms is not None
    assert generation.cached_tokens == generation.ended_early == 0


def test_idle_surrounds_the_timed_part_where_there_is_a_sensor(tmp_path):
    """Idle power is taken with the model loaded, before and after."""
    run = measured(recorded(tmp_path), idle=True, idle_seconds=0.01)
    assert run.idle_before is not None
    assert run.idle_after is not None
    assert run.idle_before.end_ns <= run.timed.start_ns < run.timed.end_ns <= run.idle_after.start_ns
