"""Facts about the statistics of generated text: definitions, and what is left out."""

import numpy as np
import pytest

from edgemeter.agent.contract.record_generation import TokenLengths
from edgemeter.agent.engine.scenarios.generation_statistics import (
    TokenMoments,
    decode_tokens_per_s,
    lengths_of,
    summarise_gaps,
    summarise_tpot,
    tpot_ns,
    unstreamed_reason,
    with_times,
)
from edgemeter.agent.engine.scenarios.timing import TimedQueries
from tests.fixtures.record_factory import make_generation


def moments(*queries: list[int]) -> TokenMoments:
    """Return the moments of queries, each given by those of its tokens, ns."""
    return TokenMoments(
        first_ns=np.array([query[0] for query in queries], np.int64),
        latency_ns=np.array([query[-1] for query in queries], np.int64),
        output_tokens=np.array([len(query) for query in queries], np.int64),
        token_ns=np.array([moment for query in queries for moment in query], np.int64),
    )


def test_a_rate_is_its_time_turned_over():
    """Both are medians over the queries, whatever one slow query took.

    The rate for prompts of several lengths is a ratio of sums.
    """
    slow = moments(
        *([100 + late, 110 + late, 130 + 2 * late] for late in [0] * 8 + [2] * 2 + [9000] * 3)
    )
    generation, _ = with_times(make_generation(prompt_tokens=1000), slow, 1000 * 13, None)
    assert generation.prefill_tokens_per_s == pytest.approx(1000 / generation.ttft.p50_ms * 1e3)
    assert generation.decode_tokens_per_s == pytest.approx(1e3 / generation.tpot.p50_ms)
    lengths = TokenLengths(min_tokens=500, mean_tokens=1000.0, max_tokens=1500)
    mixed, _ = with_times(
        make_generation(prompt_tokens=1500, prompt_lengths=lengths), slow, 1000 * 13, None
    )
    assert mixed.prefill_tokens_per_s == pytest.approx(1000 * 13 / slow.first_ns.sum() * 1e9)


def test_tpot_follows_its_definition():
    """The time per output token of a query is (last - first) / (n - 1)."""
    assert tpot_ns(moments([100, 110, 130], [200, 240, 280])).tolist() == [15, 40]


def test_answers_of_random_lengths_have_the_rate_at_which_their_tokens_came():
    """A token every 20 ms is 50 a second, whatever the lengths of the answers.

    This holds for the time per token and for the rate, and no query is left out.
    """
    draw = np.random.default_rng(1)
    step_ns = 20_000_000
    lengths = draw.integers(1, 129, 200)
    answers = moments(
        *((1_000_000_000 + step_ns * np.arange(length)).tolist() for length in lengths)
    )
    assert set(tpot_ns(answers).tolist()) == {step_ns}
    assert decode_tokens_per_s(answers) == pytest.approx(50.0)
    assert answers.gaps_ns().size == lengths.sum() - 200
    assert answers.ended_early(128) == np.count_nonzero(lengths < 128)
    lengths_stated = lengths_of(answers.output_tokens)
    assert (lengths_stated.min_tokens, lengths_stated.mean_tokens) == (
        lengths.min(),
        pytest.approx(lengths.mean()),
    )


def later_tokens(*queries):
    """Return the tokens after the first moment of queries with tokens at these microseconds."""
    return (
        moments(*([1000 * moment for moment in query] for query in queries)).later_tokens().tolist()
    )


def test_tokens_of_one_piece_and_of_one_burst_are_of_the_first_moment():
    """Each query is judged by itself.

    Tokens come one by one, joined, as four lines of a segment that are read 30 us apart, or alone.
    """
    one_by_one = [100, 2100, 4100, 6100]
    joined = [100, 100, 100, 6100]
    burst = [100, 130, 160, 190, 8100, 8130, 8160, 8190]
    assert later_tokens(one_by_one, joined, burst, [50], one_by_one) == [3, 1, 4, 0, 3]


def test_a_late_second_token_is_later_however_short_the_others_are():
    """A gap of 40% of the mean gap is jitter of a stream and not a burst."""
    assert later_tokens([0, 400, 2000, 3000]) == [3]
    assert later_tokens() == []
    assert later_tokens([0, 400, 800, 60_000]) == [3]


def test_one_token_has_no_tpot_and_no_gap():
    """A prefill alone is no decode."""
    alone = moments([100], [120])
    assert summarise_tpot(alone) is None
    assert summarise_gaps(alone) is None
    assert decode_tokens_per_s(alone) is None
    assert alone.stamped_tokens_max() == 1
    assert unstreamed_reason(alone, 100) is None


def test_tokens_that_came_together_have_a_tpot_but_no_gaps():
    """Gaps of zero belong to the stream and not to the model.

    The tokens of the first chunk came before its moment.
    """
    joined = moments([100, 100, 100, 130, 130], [100, 130, 130, 130, 160])
    assert joined.stamped_tokens_max() == 3
    assert summarise_gaps(joined) is None
    assert tpot_ns(joined).tolist() == [15, 15]


def test_an_answer_that_a_proxy_held_back_has_no_times_of_tokens():
    """All tokens of such an answer come after 2.5 s, within 2 ms.

    A stream of the same length, a long prompt with few tokens and a pure prefill are no such
    answers.
    """
    ms = 1_000_000
    held_back = moments(*[[2500 * ms + index * ms // 32 for index in range(64)] for _ in range(3)])
    assert "63 tokens came within 1.97 ms after 2,500 ms" in unstreamed_reason(held_back, 512)
    assert "in one piece" in unstreamed_reason(moments([500 * ms] * 32, [501 * ms] * 32), None)
    streamed = moments(*[[500 * ms + 30 * ms * index for index in range(64)] for _ in range(3)])
    assert unstreamed_reason(streamed, 512) is None
    few_after_much = moments(
        *[[40_000 * ms + 100 * ms * index for index in range(8)] for _ in range(3)]
    )
    assert unstreamed_reason(few_after_much, 4096) is None
    assert unstreamed_reason(moments(*[[40_000 * ms, 40_010 * ms]] * 3), 4096) is None


def test_an_answer_behind_a_long_hidden_thought_is_not_held_back():
    """After 4,000 hidden tokens, 32 tokens at 40 ms each show that the server streams.

    A server that kept the 32 back would send them at once.
    """
    ms = 1_000_000
    for step_ms, is_held_back in ((40, False), (0.1, True)):
        stream = [160_000 * ms] * 4000 + [
            160_000 * ms + round(step_ms * index * ms) for index in range(32)
        ]
        answers = moments(*[stream] * 3)
        described, reason = with_times(
            make_generation(hidden_reasoning_tokens=4000, is_local=False), answers, None, None
        )
        assert bool(reason) == is_held_back
        assert (described.tpot is None) == is_held_back


def test_the_last_token_of_a_query_and_the_first_of_the_next_did_not_come_together():
    """Moments count from each query's own start and may be equal by chance."""
    assert moments([100, 120], [120, 140]).stamped_tokens_max() == 1


def test_gaps_have_the_percentiles_that_their_number_supports_and_no_early_stopping():
    """110 gaps support a p90, but MLPerf's estimates need gaps that do not depend on each other."""
    few = moments(*([100 + 10 * index for index in range(12)] for _ in range(10)))
    latency = summarise_gaps(few)
    assert latency is not None
    assert (latency.count, latency.p50_ms, latency.p90_ms) == (110, 1e-5, 1e-5)
    assert (latency.p99_ms, latency.early_stopping_ms) == (None, {})


def test_three_tokens_at_once_are_no_stream_unless_they_were_guessed():
    """A step of speculation gives several tokens at one moment.

    A server without speculation gives one.
    """
    at_once = moments(*[[500_000_000] * 3] * 4)
    assert "in one piece" in unstreamed_reason(at_once, 8)
    assert unstreamed_reason(at_once, 8, step_tokens=8) is None
    assert unstreamed_reason(moments(*[[500_000_000]] * 4), 8) is None


def answers_of_users(users, places, prefill_ms, step_ms, tokens, *, is_held_back=False):
    """Return the moments and the queries of users who wait in line before a server.

    They ask again at once, and the first query of each counts as ramp-up.
    """
    free_ms, asks_ms, all_starts, all_moments = [0.0] * places, [0.0] * users, [], []
    for _ in range(10 * users):
        asked_ms, begin_ms = min(asks_ms), max(min(asks_ms), min(free_ms))
        token_ms = begin_ms + prefill_ms + step_ms * np.arange(tokens)
        free_ms[free_ms.index(min(free_ms))] = asks_ms[asks_ms.index(asked_ms)] = token_ms[-1]
        sent_ms = token_ms[-1] + 0.03 * np.arange(tokens) if is_held_back else token_ms
        all_starts.append(asked_ms)
        all_moments.append(np.rint((sent_ms - asked_ms) * 1e6).astype(np.int64).tolist())
    starts_ns = np.rint(np.array(all_starts) * 1e6).astype(np.int64)
    ramp_up_ns = np.array(
        [
            start_ns + times[-1]
            for start_ns, times in zip(starts_ns[:users], all_moments, strict=False)
        ]
    )
    answers = moments(*all_moments[users:])
    end_ns = int((starts_ns[users:] + answers.latency_ns).max())
    return answers, TimedQueries(
        starts_ns[users:],
        answers.latency_ns,
        0,
        end_ns,
        overlap=True,
        users=users,
        ramp_up_ns=ramp_up_ns,
    )


def test_a_line_inside_the_server_is_no_held_back_stream():
    """Of 16 users at one place, 15 are answered before each, and a token still takes 50 ms.

    A server that holds answers back is found all the same.
    """
    answers, timed = answers_of_users(16, 1, 5100, 50, 16)
    generation, reason = with_times(make_generation(prompt_tokens=512), answers, None, timed)
    assert answers.first_ns.min() > 90e9
    assert reason is None
    assert generation.tpot.p50_ms == pytest.approx(50.0)
    held_back, timed = answers_of_users(16, 4, 5100, 50, 16, is_held_back=True)
    assert (
        "holds them back"
        in with_times(make_generation(prompt_tokens=512), held_back, None, timed)[1]
    )
