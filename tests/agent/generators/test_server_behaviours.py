"""Facts about servers as they are met: what is stated of each is in its own log, and where nothing can be known there is a reason."""

import pytest

from tests.fixtures.played_behaviour import OUTPUT_TOKENS, play
from tests.fixtures.server_behaviours import BEHAVIOURS, STEP_MS

QUERIES = 4
# Rules that say something of the machine that runs this test, or of so few queries.
OF_A_SERVER = {
    "cached-prompt", "failed-answers", "early-ends", "short-output", "estimated-tokens", "unstreamed", "joined-tokens", "hidden-reasoning"
}  # fmt: skip
# The client may be late on a busy machine, but is never early.
EARLY_MS = 0.05


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.needs("openssl")] if behaviour.secured else []) for name, behaviour in BEHAVIOURS.items()],
)
def test_a_behaviour_is_stated_as_what_it_is(name, tmp_path):
    """Tokens, failures and rules are those of the server's log; times are there where tokens came one after the other."""
    behaviour, played = BEHAVIOURS[name], play(name, tmp_path, QUERIES)
    if behaviour.outcome == "error":
        assert behaviour.detail in played.error
        assert "\n" not in played.error
        return
    generation = played.generation
    assert played.rules & OF_A_SERVER == set(behaviour.rules)
    lengths = generation.output_lengths
    expected = OUTPUT_TOKENS if behaviour.tokens is None else max(OUTPUT_TOKENS * behaviour.tokens, 1)
    assert lengths.mean_tokens == pytest.approx(expected)
    assert sum(answer.tokens for answer in played.logged()[-QUERIES:]) >= QUERIES * expected or behaviour.outcome == "failures"
    if behaviour.outcome == "failures":
        assert list(generation.failures) == [behaviour.detail]
        assert generation.failures[behaviour.detail] >= 1
    if behaviour.outcome == "no times":
        assert (generation.ttft, generation.tpot, generation.decode_tokens_per_s) == (None, None, None)
        assert generation.streaming_reason
        return
    assert generation.ttft.min_ms >= min(answer.ttft_ms for answer in played.logged()) - EARLY_MS
    assert (generation.tpot is None) == (played.log_tpot_ms() is None)


def test_hidden_reasoning_is_in_the_time_to_first_token_and_not_in_that_of_the_others(tmp_path):
    """Six of twelve tokens are thoughts that nobody sees: the five steps behind the first piece are one token each, of 2 ms."""
    generation = play("hidden reasoning", tmp_path, QUERIES).generation
    # A first piece that was read late takes from TPOT what it adds to TTFT: the last is never early. With thoughts among the pieces TPOT is
    # less than half of a step.
    assert generation.ttft.mean_ms + 5 * generation.tpot.mean_ms >= 11 * STEP_MS - EARLY_MS
    assert generation.ttft.min_ms >= 6 * STEP_MS
    assert (generation.hidden_reasoning_tokens, generation.prefill_tokens_per_s, generation.itl) == (6, None, None)
