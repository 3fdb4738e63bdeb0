"""Perplexity by the rule of llama-perplexity."""

import hashlib
import math

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.quality.perplexity import chunks, perplexity
from tests.fixtures.rows import table_row


def alternating(tokens):
    """Return 1/2 for the first half's predictions, then 1/4 and 1/8 in turn."""
    half = len(tokens) // 2
    return np.log([1 / 2 if at < half else (1 / 4, 1 / 8)[at % 2] for at in range(len(tokens) - 1)])


def test_only_the_second_half_of_each_chunk_counts():
    """By hand: with 8 tokens a chunk, predictions 4, 5, 6 of 0..6 count, which are 1/4, 1/8, 1/4: 2^(7/3)."""
    result = perplexity("abc", range(19), alternating, bos_token=None, context_tokens=8)
    assert result.value == pytest.approx(2 ** (7 / 3), abs=1e-12)
    assert (result.chunks, result.counted_tokens, result.text_tokens) == (2, 6, 19)


def test_the_standard_error_is_that_of_llama_perplexity():
    """The tool's formula: sqrt((mean of squares - square of the mean) / (count - 1)) times the perplexity."""
    result = perplexity("abc", range(16), alternating, bos_token=None, context_tokens=8)
    losses = [math.log(4), math.log(8), math.log(4)] * 2
    mean, squares = sum(losses) / 6, sum(loss * loss for loss in losses) / 6
    assert result.standard_error == pytest.approx(math.exp(mean) * math.sqrt((squares - mean * mean) / 5), rel=1e-12)


def test_bits_per_byte_is_the_mean_loss_times_tokens_per_byte():
    """By hand: 7/3 bits a token, 16 tokens (the beginning of text is none of the text's) on 4 bytes."""
    for tokens, bos in ((range(16), None), (range(17), 0)):
        result = perplexity("aüb", tokens, alternating, bos_token=bos, context_tokens=8)
        assert result.bits_per_byte == pytest.approx(7 / 3 * 16 / 4, abs=1e-12)


def test_each_chunk_begins_with_the_beginning_of_text():
    """The tool overwrites the first token of every chunk, and drops what is left at the end."""
    assert chunks(range(10, 23), 6, 1) == [[1, 11, 12, 13, 14, 15], [1, 17, 18, 19, 20, 21]]
    assert chunks(range(10, 23), 6, None)[1][0] == 16


def test_a_result_names_rule_and_text():
    """Rule, context, beginning of text and the hash of the text's UTF-8 are part of the figure."""
    result = perplexity("Grüße", range(8), alternating, bos_token=1, context_tokens=4)
    assert (result.rule, result.context_tokens, result.bos_token) == ("llama-perplexity", 4, 1)
    assert result.text_sha256 == hashlib.sha256("Grüße".encode()).hexdigest()


def test_a_short_text_is_refused():
    """As the tool, with fewer than two chunks there is no figure."""
    with pytest.raises(ConfigError, match="at least 16 tokens, and this one has 15"):
        perplexity("abc", range(15), alternating, bos_token=None, context_tokens=8)
    with pytest.raises(ConfigError, match="at least 4 tokens"):
        perplexity("abc", range(15), alternating, bos_token=None, context_tokens=3)


def test_what_is_no_probability_gives_no_perplexity():
    """An infinite loss, NaN and missing predictions are errors, not figures."""
    for answer in [np.full(7, -np.inf), np.full(7, np.nan), np.zeros(6)]:
        with table_row(answer), pytest.raises(MeasurementError, match="for 7 predictions"):
            perplexity("abc", range(16), lambda _, answer=answer: answer, bos_token=None, context_tokens=8)
