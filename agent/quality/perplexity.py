"""Perplexity by the rule of llama.cpp's tool `llama-perplexity`, so that its figures and ours are the same.

The text is tokenised once, with the beginning-of-text token if the vocabulary adds one, and cut into chunks of `context_tokens`; what
is left at the end is dropped. Each chunk is evaluated from an empty context, its first token replaced by the beginning-of-text token.
Only the predictions of its second half count: of the tokens `context_tokens / 2 + 1` to the last, so that every prediction sees at
least half a context.

Perplexities of other rules (overlapping windows, whole documents) differ by several percent, and those of other tokenisers mean
something else: across tokenisers only the bits per byte compare.
Source: llama.cpp, tools/perplexity/perplexity.cpp, `perplexity` and `process_logits`.
"""

import hashlib
import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError, MeasurementError

RULE = "llama-perplexity"
DEFAULT_CONTEXT_TOKENS = 512
# Two chunks are the fewest that llama-perplexity accepts.
FEWEST_CHUNKS = 2
# Natural logarithms of the probabilities of tokens 1..n-1, each given all before it: float64 [n - 1] for n tokens, from an empty context.
LogLikelihoods = Callable[[Sequence[int]], NDArray[np.float64]]


class Perplexity(msgspec.Struct, frozen=True, kw_only=True):
    """Perplexity of a model on a text, with all that it depends on.

    `standard_error` is that of `value`, from the spread of the predictions. `bits_per_byte` is the mean loss in bits times the tokens per
    UTF-8 byte of the text. `text_sha256` is of those bytes. `chunk_losses` is the mean loss of each chunk in nats: two files of one
    tokeniser are compared chunk by chunk.
    """

    value: float
    standard_error: float
    bits_per_byte: float
    rule: str
    context_tokens: int
    bos_token: int | None
    chunks: int
    counted_tokens: int
    text_tokens: int
    text_sha256: str
    chunk_losses: tuple[float, ...] = ()


def perplexity(
    text: str,
    tokens: Sequence[int],
    log_likelihoods: LogLikelihoods,
    *,
    bos_token: int | None,
    context_tokens: int = DEFAULT_CONTEXT_TOKENS,
) -> Perplexity:
    """Return the perplexity of a model, asked once per chunk of `context_tokens`, on `text`.

    `tokens` are all of its tokens, the first one the beginning-of-text token `bos_token` if the vocabulary adds one.

    Raises:
        ConfigError: the text is too short, or a chunk is.
        MeasurementError: the model gave a probability of nothing or a wrong number of them.
    """
    parts = chunks(tokens, context_tokens, bos_token)
    first = context_tokens // 2
    by_chunk = [_checked(log_likelihoods(part), len(part))[first:] for part in parts]
    counted = np.concatenate(by_chunk)
    loss = -float(counted.mean())
    spread = float(counted.std(ddof=1)) / math.sqrt(len(counted))
    own_tokens, content = len(tokens) - (bos_token is not None and tokens[0] == bos_token), text.encode()
    return Perplexity(
        value=math.exp(loss),
        standard_error=math.exp(loss) * spread,
        bits_per_byte=loss / math.log(2) * own_tokens / len(content),
        rule=RULE,
        context_tokens=context_tokens,
        bos_token=bos_token,
        chunks=len(parts),
        counted_tokens=len(counted),
        text_tokens=len(tokens),
        text_sha256=hashlib.sha256(content).hexdigest(),
        chunk_losses=tuple(-float(chunk.mean()) for chunk in by_chunk),
    )


def chunks(tokens: Sequence[int], context_tokens: int, bos_token: int | None) -> list[list[int]]:
    """Return the chunks of a text, each beginning with `bos_token` if there is one.

    Raises:
        ConfigError: there are fewer than two, or a chunk is too short to predict anything.
    """
    if context_tokens < 4:
        raise ConfigError(f"perplexity needs chunks of at least 4 tokens, not {context_tokens}: give a longer context")
    count = len(tokens) // context_tokens
    if count < FEWEST_CHUNKS:
        raise ConfigError(
            f"perplexity with a context of {context_tokens} tokens needs a text of at least {FEWEST_CHUNKS * context_tokens} tokens, "
            f"and this one has {len(tokens)}: give a longer text or a shorter context"
        )
    parts = [list(tokens[number * context_tokens : (number + 1) * context_tokens]) for number in range(count)]
    return parts if bos_token is None else [[bos_token, *part[1:]] for part in parts]


def _checked(values: NDArray[np.float64], tokens: int) -> NDArray[np.float64]:
    if values.shape != (tokens - 1,) or not np.isfinite(values).all():
        raise MeasurementError(
            f"the model gave {np.isfinite(values).sum()} probabilities for {tokens - 1} predictions: check the file, no perplexity follows"
        )
    return values
