"""Which tokens of an answer came with its first moment: several in one piece, or in pieces that arrived at once."""

import numpy as np
from numpy.typing import NDArray

# A gap so much shorter than the mean one is none of decoding: the pieces on both sides of it arrived together.
TOGETHER_RATIO = 0.1


def tokens_after_first(token_ns: NDArray[np.int64], output_tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many tokens of each query came after those of its first moment, int64 [queries].

    `token_ns` are the moments of all tokens, int64 [tokens], query after query, and `output_tokens` how many each has, int64 [queries].
    """
    owner = np.repeat(np.arange(output_tokens.size), output_tokens)
    ends = np.cumsum(output_tokens)
    mean_ns = (token_ns[ends - 1] - token_ns[ends - output_tokens]) / np.maximum(output_tokens - 1, 1)
    gaps = np.diff(token_ns)
    waited = (np.diff(owner) == 0) & (gaps > TOGETHER_RATIO * mean_ns[owner[1:]])
    # Tokens behind the first wait of their own query.
    waits = np.concatenate(([0], np.cumsum(waited))) if token_ns.size else np.zeros(0, np.int64)
    is_later = waits > waits[(ends - output_tokens)[owner]]
    return np.bincount(owner[is_later], minlength=output_tokens.size)
