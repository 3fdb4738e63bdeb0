"""Rules on the figures of one case: what follows from the one must not contradict the other; that they agree proves neither."""

import re

from edgemeter.collector.published.judgement import Evidence
from edgemeter.collector.published.row import PublishedRow
from edgemeter.collector.published.rule import JudgedRow, PublishedRules, finding, largest, number, result, smallest

# Means and medians of the same queries differ, and a rate over all of them is not the mean of their rates.
SPREAD_RATIO = 1.25
_SWAP = re.compile(r"swap|zram|page ?file|virtual memory|mmap|memory[- ]mapped", re.IGNORECASE)
_NO_SWAP = re.compile(r"\b(?:no|without) (?:\w+ )?(?:swap|zram)|swap\w*(?: \w+)? (?:off|disabled)|swapoff", re.IGNORECASE)

CONSISTENCY_RULES = PublishedRules()


@CONSISTENCY_RULES.rule(
    "throughput x mean latency is at most the number of inputs in flight (Little's law)",
    "a device that works on one input at a time finishes at most 1 / latency per second",
)
def _throughput_above_latency(judged: JudgedRow) -> Evidence | None:
    row, latency = judged.row, judged.companion("latency-mean", "latency")
    if row.figure != "throughput" or latency is None:
        return None
    rate, latency_ms, at_once = row.canonical[0], latency.canonical[0], judged.users or 1
    product = rate * latency_ms / 1000
    if smallest(row) * smallest(latency) / 1000 <= at_once * SPREAD_RATIO:
        return None
    sums = f"{number(rate)} inferences/s x {number(latency_ms)} ms = {result(product)} inputs in flight"
    is_mean = latency.figure == "latency-mean" or latency.statistic == "mean"
    both = (row.batch or 1) * row.concurrency if row.concurrency else None
    if both and is_mean and judged.is_on_cpu and smallest(row) * smallest(latency) / 1000 > both:
        return finding("impossible", f"{sums}, and the source states {both}: impossible by Little's law", product, both, "inputs")
    clause = f"the source states {at_once}" if judged.users else "the source states no more than one at a time"
    return finding("unclear", f"{sums}, and {clause}: a pipeline or parallel streams would explain it", product, at_once, "inputs")


@CONSISTENCY_RULES.rule("the time to the first token is at least prompt tokens / prefill rate", "the first token follows the whole prompt")
def _first_token_before_prompt(judged: JudgedRow) -> Evidence | None:
    row, rate = judged.row, judged.companion("prefill-tokens")
    if row.figure != "ttft" or rate is None or row.prompt_tokens is None:
        return None
    ttft_ms, needed_ms = row.canonical[0], row.prompt_tokens / rate.canonical[0] * 1000
    if largest(row) * SPREAD_RATIO >= row.prompt_tokens / largest(rate) * 1000:
        return None
    sums = f"{row.prompt_tokens} prompt tokens / {number(rate.canonical[0])} tokens/s = {result(needed_ms)} ms"
    sums = f"{sums}, and the first token comes after {number(ttft_ms)} ms"
    why = "for how many prompts the rate holds" if (judged.users or 1) > 1 else "how much of the prompt came from a cache"
    return finding("unclear", f"{sums}: {why} is not stated", ttft_ms, needed_ms, "ms")


@CONSISTENCY_RULES.rule("tokens per second are at most 1 / time per token x users", "the two figures describe the same tokens")
def _tokens_faster_than_their_time(judged: JudgedRow) -> Evidence | None:
    row, tpot = judged.row, judged.companion("tpot")
    if row.figure not in {"tokens", "output-tokens", "user-tokens"} or tpot is None:
        return None
    users = 1 if row.figure == "user-tokens" else judged.users or 1
    rate, limit = row.canonical[0], 1000 / tpot.canonical[0] * users
    if smallest(row) <= 1000 / smallest(tpot) * users * SPREAD_RATIO:
        return None
    sums = f"1 token / {number(tpot.canonical[0])} ms x {users} = {result(limit)} tokens/s, and {number(rate)} tokens/s are stated"
    if judged.users is None and row.figure != "user-tokens":
        return finding("unclear", f"{sums}: how many answers were decoded at once is not stated", rate, limit, "tokens/s")
    if judged.speculates is not False:
        why = "how many tokens come at a time, by speculative decoding, is not stated"
        return finding("unclear", f"{sums}: {why}", rate, limit, "tokens/s")
    return finding("impossible", f"{sums}: the two contradict each other", rate, limit, "tokens/s")


@CONSISTENCY_RULES.rule(
    "memory use, and a file of weights, fit into the RAM that the device's name states, else the most it is sold with",
    "memory in use is part of the RAM; only a mapped file or swap lies outside",
)
def _memory_beyond_ram(judged: JudgedRow) -> Evidence | None:
    row, board = judged.row, judged.limits.board
    if row.figure not in {"memory", "memory_loaded_mb"} or not judged.limits.is_complete or judged.limits.devices is None:
        return None
    if (weights := _weights_above(judged, row)) is not None:
        return weights
    parts = [part for part in (board, *judged.limits.added) if part and part.ram_gb]
    if not parts or board is None:
        return finding("unclear", f"{number(row.canonical[0])} MB cannot be checked against the RAM: no bound of this board is on record")
    named_gb = judged.named_ram_gb
    board_gb = named_gb or max(board.ram_gb)
    added_gb = sum(max(part.ram_gb) for part in parts if part is not board)
    # People call 8 x 1024^3 bytes 8 GB.
    limit_mb = (board_gb + added_gb) * 1073.741824 * judged.limits.devices
    origin = "as its name states" if named_gb else f"the most it is sold with; {board.ram_source}"
    sums = f"{number(row.canonical[0])} MB are in use, and {row.device} has {number(board_gb + added_gb)} GB of RAM ({origin})"
    if smallest(row) > limit_mb and _SWAP.search(judged.text) and not _NO_SWAP.search(judged.text):
        return finding("unclear", f"{sums}: possible only if part of it lies in swap or in a mapped file", row.canonical[0], limit_mb, "MB")
    if smallest(row) > limit_mb:
        return finding("impossible", f"{sums}: impossible", row.canonical[0], limit_mb, "MB")
    return finding("plausible", f"{sums}: possible", row.canonical[0], limit_mb, "MB")


def _weights_above(judged: JudgedRow, row: PublishedRow) -> Evidence | None:
    """Return the evidence on a memory that is too small for the weights it has to hold; None where it holds them."""
    weights = judged.weights()
    if isinstance(weights, str) or weights.is_even_so or largest(row) >= weights.least_mb:
        return None
    sentence = f"{number(row.canonical[0])} MB are in use, less than {weights.text}: possible only with a memory-mapped file"
    return finding("unclear", sentence, row.canonical[0], weights.mb, "MB")
