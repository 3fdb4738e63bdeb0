"""Rules on speed: what memory and compute units can do at most."""

from edgemeter.collector.published.judgement import Evidence
from edgemeter.collector.published.rule import (
    LEAST_BITS,
    JudgedRow,
    PublishedRules,
    ReadWeights,
    finding,
    largest,
    number,
    result,
    smallest,
)

# What caches may hold says nothing of the memory.
LEAST_WEIGHTS_MB = 64.0
# Fewer multiplications of a 3 x 3 convolution by Winograd's algorithm, in tiles of 2 x 2 and of 6 x 6 outputs; small types have only the
# former. Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (arXiv 1509.09308), section 4.
WINOGRAD_SMALL, WINOGRAD = 2.25, 5.0625
# Of weights that are only stated in number, this much at least is no output head, which a prompt's tokens do not pass.
LEAST_PROMPT_SHARE = 1 / 3
LEAST_SIDE = 64  # The smallest input that a network for pictures gets, pixels.

SPEED_RULES = PublishedRules()


@SPEED_RULES.rule(
    "decode steps per second x bytes read per step stay below the bandwidth of the memory",
    "each step reads all weights of a dense model; what the caches do not hold comes from memory",
)
def _decode_above_bandwidth(judged: JudgedRow) -> Evidence | None:
    row = judged.row
    if row.figure not in {"tokens", "output-tokens", "user-tokens", "tpot"}:
        return None
    weights, bound = judged.weights(), judged.memory()
    if isinstance(weights, str) or isinstance(bound, str):
        reason = weights if isinstance(weights, str) else str(bound)
        return finding("unclear", f"{_rate(judged)[2]} cannot be checked against the memory bandwidth: {reason}")
    if weights.mb < LEAST_WEIGHTS_MB:
        return None
    stated_per_s, least_per_s, rate = _rate(judged)
    users = judged.users if row.figure in {"tokens", "output-tokens"} else 1
    step_tokens = judged.companion("step-tokens")
    per_step = step_tokens.canonical[0] if step_tokens and judged.speculates is not False else 1.0
    divided = f" / {users} answers at once" if users and users > 1 else ""
    divided += f" / {number(per_step)} tokens per step" if per_step > 1 else ""
    required, limit = stated_per_s * weights.mb / per_step / (users or 1) / 1000, bound.value / 1000
    sums = f"{rate} x {weights.text}{divided} = {result(required)} GB/s, and {bound.clause}"
    # The fewest steps that give so many tokens.
    steps_per_s = least_per_s / (largest(step_tokens) if step_tokens and per_step > 1 else 1.0) / (users or 1)
    if steps_per_s * weights.least_mb <= bound.value * (1 + 1e-9):
        if weights.is_even_so:
            return finding(
                "unclear", f"{sums}: possible at {LEAST_BITS:g} bits a weight, but the precision is not stated", required, limit, "GB/s"
            )
        return finding("plausible", f"{sums}: possible{_rounded(required, limit)}", required, limit, "GB/s")
    return _above_bandwidth(judged, sums, required, limit, steps_per_s, weights)


def _rounded(required: float, limit: float) -> str:
    return " within the rounding of what is stated" if required > limit else ""


def _above_bandwidth(judged: JudgedRow, sums: str, required: float, limit: float, steps_per_s: float, weights: ReadWeights) -> Evidence:
    """Return the evidence on a rate above the bandwidth: what could still explain it, and whether it is stated."""
    cache_mb = judged.cache_mb()
    if steps_per_s * max(weights.least_mb - cache_mb, 0.0) <= limit * 1000:
        return finding(
            "unclear", f"{sums}: possible only if caches of {number(cache_mb)} MB hold part of the weights", required, limit, "GB/s"
        )
    if judged.speculates and judged.companion("step-tokens") is None:
        return finding("unclear", f"{sums}: speculative decoding is stated, but not how many tokens a step yields", required, limit, "GB/s")
    if judged.is_of_many:
        return finding(
            "unclear",
            f"{sums}: possible only if several answers were decoded at once, and their number is not stated",
            required,
            limit,
            "GB/s",
        )
    users = 1 if judged.row.figure in {"user-tokens", "tpot"} else judged.users
    unstated = [] if judged.speculates is not None else ["speculative decoding"]
    unstated += [] if users else ["a batch"]
    neither = "neither is" if len(unstated) == 2 else "none is"
    ending = f" without {' or '.join(unstated)}, and {neither} stated" if unstated else ""
    who = "for one user" if users in {None, 1} else f"for {users} answers at once"
    return finding("impossible", f"{sums}: impossible {who}{ending}", required, limit, "GB/s")


def _rate(judged: JudgedRow) -> tuple[float, float, str]:
    """Return tokens a second as stated and at least, and in words."""
    row = judged.row
    value = row.canonical[0]
    if row.figure == "tpot":
        return 1000 / value, 1000 / largest(row), f"1 token / {number(value)} ms"
    return value, smallest(row), f"{number(value)} tokens/s"


@SPEED_RULES.rule(
    "prompt tokens per second x 2 operations x weights stay below the peak of the compute units",
    "each prompt token is multiplied by all weights but the output head; a sparse peak is allowed for, in favour of the figure",
)
def _prefill_above_compute(judged: JudgedRow) -> Evidence | None:
    row, facts = judged.row, judged.model
    if row.figure == "prefill-tokens":
        rate, least_rate, words = row.canonical[0], smallest(row), f"{number(row.canonical[0])} prompt tokens/s"
    elif row.figure == "ttft" and row.prompt_tokens:
        rate, least_rate = row.prompt_tokens * 1000 / row.canonical[0], row.prompt_tokens * 1000 / largest(row)
        words = f"{row.prompt_tokens} prompt tokens / {number(row.canonical[0])} ms"
    else:
        return None
    parameters = facts.prompt_parameters if facts and facts.prompt_parameters else None
    if row.read_parameters and parameters is None:
        parameters = row.read_parameters * LEAST_PROMPT_SHARE
    bound = judged.compute(None)
    if parameters is None or isinstance(bound, str):
        reason = bound if isinstance(bound, str) else "how many weights a prompt token is multiplied by is not stated"
        return finding("unclear", f"{words} cannot be checked against the peak of the compute units: {reason}")
    required = rate * 2 * parameters / 1e9
    sums = f"{words} x 2 operations x {number(parameters / 1e9)} x 10^9 weights = {result(required)} Gop/s, and {bound.clause}"
    if least_rate * 2 * parameters / 1e9 <= bound.value:
        return finding("plausible", f"{sums}: possible{_rounded(required, bound.value)}", required, bound.value, "Gop/s")
    if judged.has_cache or row.figure == "ttft":
        return finding(
            "unclear", f"{sums}: possible only if part of the prompt came from a cache, which is not stated", required, bound.value, "Gop/s"
        )
    return finding(
        "impossible", f"{sums}: impossible unless the prompt came from a cache, and none is stated", required, bound.value, "Gop/s"
    )


@SPEED_RULES.rule(
    "inferences per second x operations per inference stay below the peak of the compute units in that precision",
    "no hardware exceeds its peak; sparse peaks, overclocking and Winograd's algorithm are allowed for, in favour of the figure",
)
def _work_above_compute(judged: JudgedRow) -> Evidence | None:
    row, facts = judged.row, judged.model
    is_latency = row.figure.startswith("latency")
    if not (is_latency or row.figure == "throughput") or (facts and facts.read_parameters):
        return None
    value = row.canonical[0]
    # A latency of a batch may be that of each of its inputs: one input in it is the least.
    rate, least_rate = (1000 / value, 1000 / largest(row)) if is_latency else (value, smallest(row))
    words = f"1 / {number(value)} ms" if is_latency else f"{number(value)} inferences/s"
    gop = _gop(judged)
    bound = judged.compute(judged.bits)
    if isinstance(gop, str) or isinstance(bound, str):
        reason = gop if isinstance(gop, str) else str(bound)
        words = f"a latency of {number(value)} ms" if is_latency else words
        return finding("unclear", f"{words} cannot be checked against the peak of the compute units: {reason}")
    required = rate * gop
    sums = f"{words} x {_gop_words(judged, gop)} = {result(required)} Gop/s, and {bound.clause}"
    if least_rate * gop <= bound.value:
        return finding("plausible", f"{sums}: possible{_rounded(required, bound.value)}", required, bound.value, "Gop/s")
    saved = WINOGRAD_SMALL if judged.bits is not None and judged.bits <= 8 else WINOGRAD
    if least_rate * gop <= bound.value * saved:
        return finding(
            "unclear",
            f"{sums}: possible only with Winograd's algorithm (up to {number(saved)} times fewer operations)",
            required,
            bound.value,
            "Gop/s",
        )
    if row.gop is None and _side(judged) is None and least_rate * _gop_at(judged, LEAST_SIDE) <= bound.value * saved:
        return finding("unclear", f"{sums}: possible only with a smaller input, whose size is not stated", required, bound.value, "Gop/s")
    return finding(
        "impossible",
        f"{sums}: impossible, even with Winograd's algorithm (up to {number(saved)} times fewer operations)",
        required,
        bound.value,
        "Gop/s",
    )


def _gop(judged: JudgedRow) -> float | str:
    """Return the operations of one inference, 10^9: as stated, else by the model's name and the size of the input."""
    if judged.row.gop is not None:
        return judged.row.gop
    if judged.model is None or not judged.model.gop:
        return "how many operations an inference takes is not stated"
    return _gop_at(judged, _side(judged) or next(iter(judged.model.gop)))


def _gop_words(judged: JudgedRow, gop: float) -> str:
    """Return the operations in words, with the factor by which they follow from those at another size of the input."""
    words, side = f"{number(gop)} Gop per inference", _side(judged)
    by_side = judged.model.gop if judged.model else {}
    if judged.row.gop is not None or side is None or side in by_side or not by_side:
        return words
    usual = max(by_side, key=lambda entry: by_side[entry] / entry**2)
    return f"{words} ({number(by_side[usual])} Gop x ({side} / {usual})^2, by the sides of the input in pixels)"


def _gop_at(judged: JudgedRow, side: int) -> float:
    """Return the operations at another side of the input: a convolution has as many as its input has pixels, in proportion."""
    by_side = judged.model.gop if judged.model else {}
    return max((gop * (side / usual) ** 2 for usual, gop in by_side.items()), default=0.0)


def _side(judged: JudgedRow) -> int | None:
    return judged.side(next(iter(judged.model.gop), 0)) if judged.model else None
