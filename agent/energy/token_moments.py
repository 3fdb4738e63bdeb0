"""Which tokens of an answer came with its first moment: several in one piece, or in pieces that arrived at once."""

import numpy as np
from numpy.typing import NDArray

# A gap of a network so much shorter than the mean one, and so short, is none of decoding: both pieces arrived together.
TOGETHER_RATIO, TOGETHER_NS = 0.1, 300_000


def are_after_first(token_ns: NDArray[np.int64], output_tokens: NDArray[np.int64], *, is_local: bool) -> NDArray[np.bool_]:
    """Return which tokens came after those of the first moment of their query, bool [tokens].

    `token_ns` are the moments of all tokens, int64 [tokens], query after query, and `output_tokens` how many each has, int64 [queries]. An
    engine in this process (`is_local`) hands over together what has one moment, a network also what was read at once.
    """
    owner = np.repeat(np.arange(output_tokens.size), output_tokens)
    ends = np.cumsum(output_tokens)
    mean_ns = (token_ns[ends - 1] - token_ns[ends - output_tokens]) / np.maximum(output_tokens - 1, 1)
    gaps = np.diff(token_ns)
    shortest_ns = np.zeros(gaps.size) if is_local else np.minimum(TOGETHER_RATIO * mean_ns[owner[1:]], TOGETHER_NS)
    waited = (np.diff(owner) == 0) & (gaps > shortest_ns)
    # Tokens behind the first wait of their own query.
    waits = np.concatenate(([0], np.cumsum(waited))) if token_ns.size else np.zeros(0, np.int64)
    are_later: NDArray[np.bool_] = waits > waits[(ends - output_tokens)[owner]]
    return are_later


def tokens_after_first(token_ns: NDArray[np.int64], output_tokens: NDArray[np.int64], *, is_local: bool) -> NDArray[np.int64]:
    """Return how many tokens of each query came after those of its first moment, int64 [queries]; see `are_after_first`."""
    owner = np.repeat(np.arange(output_tokens.size), output_tokens)
    return np.bincount(owner[are_after_first(token_ns, output_tokens, is_local=is_local)], minlength=output_tokens.size)
