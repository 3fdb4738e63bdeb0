"""Rules on generated text: caches, lengths, what a processor or memory can do at most, the engine's own timings, layers on the GPU."""

import math

import numpy as np

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_generation import MOST_CACHED, SYNTHETIC, Generation
from edgemeter.agent.engine.scenarios.generation_statistics import TokenMoments, tpot_ns
from edgemeter.agent.machine.board_limits import OPERATIONS_PER_CYCLE, memory_mb_per_s
from edgemeter.agent.verdict.condition_rules import swapping_evidence
from edgemeter.agent.verdict.rule import Rules, RunFacts

OWN_RATIO = 0.05
# Our loop costs some 7 us a token, stamps and the end of the prefill less than a millisecond: of tiny models these are much.
OWN_DECODE_MS = 0.05
OWN_PREFILL_MS = 1.0
SLOWED_RATIO = 0.10
FEWEST_IN_THIRD = 3
# What caches may hold says nothing of the memory; a guest's kernel may report smaller ones than there are.
LEAST_WEIGHTS_MB = 64.0
# Two sockets of HBM2e, the most that processors have. Source: Intel's data sheet of the Xeon CPU Max series, 1,638 GB/s each.
ANY_MB_PER_S = 3_276_000.0

# A weight is multiplied and added.
OPERATIONS_PER_WEIGHT = 2


# Each function judges a run that generated text; other runs violate nothing.
_RULES = Rules()


@_RULES.invalid(
    "of each prompt at most one token (the begin of text) and those of the chat template come from a cache",
    "a cached prompt is not processed: its time to first token is that of a lookup",
    "switch the engine's prompt cache off",
)
def _cached_prompt(_: RunFacts, generation: Generation) -> str | None:
    allowed = MOST_CACHED + (generation.template_tokens or 0)
    if generation.cached_tokens is None or generation.cached_tokens <= allowed:
        return None
    return f"{generation.cached_tokens} of {generation.prompt_tokens} prompt tokens came from a cache: switch the engine's prompt cache off"


@_RULES.invalid(
    "less than 16 MB go to swap while tokens are timed",
    "every token reads all weights, swapped ones from the disk",
    "a smaller model, or more memory",
)
def _weights_swapped(facts: RunFacts, _: Generation) -> str | None:
    return swapping_evidence(facts, "while tokens were timed: use a smaller model or context")


@_RULES.suspect(
    "prefill rate x 2 x weights stays below what the cores could compute at most at their clock (CPU)",
    "a prompt of random tokens has to be computed",
    "check that the prompt is not cached and the model is the one meant",
)
def _prefill_above_compute(facts: RunFacts, generation: Generation) -> str | None:
    weights, rate = generation.model.read_parameters, generation.prefill_tokens_per_s
    clocks = [hz for condition in facts.at() for hz in (condition.clock_max_hz, condition.clock_hz) if hz]
    per_cycle = OPERATIONS_PER_CYCLE.get(facts.environment.arch) if facts.environment else None
    if not (weights and rate and clocks and per_cycle) or facts.measured.runtime.backend != "cpu" or not generation.is_local:
        return None
    needed_gop_per_s = rate * weights * OPERATIONS_PER_WEIGHT / 1e9
    cores = min(facts.measured.runtime.threads, facts.measured.scheduling.cores if facts.measured.scheduling else 1 << 30)
    most_gop_per_s = cores * max(clocks) * per_cycle / 1e9
    if needed_gop_per_s <= most_gop_per_s:
        return None
    return (
        f"{rate:,.0f} prompt tokens/s through {weights:,} weights are {needed_gop_per_s:,.0f} Gop/s, {cores} cores have at most "
        f"{most_gop_per_s:,.0f}: the prompt was not processed"
    )


@_RULES.suspect(
    "decode steps x bytes read in each stay below the bandwidth of memory: of the board, else of any processor",
    "each step reads every weight of a dense model and the cache; what is beyond the processor's caches comes from memory",
    "check that the file's weights are those that run",
)
def _decode_above_bandwidth(facts: RunFacts, generation: Generation) -> str | None:
    weights_mb, weights_mb_per_s = generation.model.weights_mb, generation.weight_bandwidth_mb_per_s
    limit = _most_mb_per_s(facts)
    if not (weights_mb and weights_mb_per_s and limit) or not generation.is_local:
        return None
    steps_per_s = weights_mb_per_s / weights_mb
    step_mb = (generation.read_bandwidth_mb_per_s or weights_mb_per_s) / steps_per_s
    caches_mb = (facts.environment.cache_mb if facts.environment else None) or 0.0
    read_mb_per_s = steps_per_s * (step_mb - caches_mb)
    if step_mb <= max(caches_mb, LEAST_WEIGHTS_MB) or read_mb_per_s <= limit[0]:
        return None
    beyond = f", {caches_mb:,.0f} MB of it perhaps from caches" if caches_mb else ""
    return (
        f"{steps_per_s:,.4g} steps/s read {step_mb:,.0f} MB each{beyond}: {read_mb_per_s / 1000:,.1f} GB/s; {limit[1]} "
        f"{limit[0] / 1000:,.1f} GB/s"
    )


def _most_mb_per_s(facts: RunFacts) -> tuple[float, str] | None:
    """Return what memory gives at most, MB/s, and by which bound; None of an accelerator that is no part of a known board."""
    environment, is_cpu = facts.environment, facts.measured.runtime.backend == "cpu"
    board = (environment.board if environment else None) or ""
    if board_mb_per_s := memory_mb_per_s(board):
        return board_mb_per_s, f"the memory of {board} gives at most"
    return (ANY_MB_PER_S, "no processor's memory gives more than") if is_cpu else None


@_RULES.suspect(
    "our rates and the engine's own lie within 5% (or 50 us a token, 1 ms a prompt beside network and `ttft_decode_steps`)",
    "two clocks on one thing that disagree measure two things",
    "measure again; if it stays, distrust both",
)
def _own_timings_differ(facts: RunFacts, generation: Generation) -> str | None:
    ours_per_s, own_per_s = generation.prefill_tokens_per_s, generation.own_prefill_tokens_per_s
    # Some engines hand the first token over when more are computed.
    steps, own_decode_per_s = facts.measured.runtime.facts.get("ttft_decode_steps", "0"), generation.own_decode_tokens_per_s
    steps_ms = int(steps) * 1000 / own_decode_per_s if steps.isdecimal() and own_decode_per_s else 0.0
    allowed_ms = OWN_PREFILL_MS + (generation.network_round_trip_ms or 0.0) + steps_ms
    # The mean of TTFT is what a prompt takes by our rate, whatever of it came from a cache.
    prefill = _differs("prefill", ours_per_s, own_per_s, allowed_ms, generation.ttft.mean_ms if generation.ttft else 0.0)
    ours_per_s, own_per_s = generation.decode_tokens_per_s, generation.own_decode_tokens_per_s
    decode = _differs("decode", ours_per_s, own_per_s, OWN_DECODE_MS, 1000 / ours_per_s if ours_per_s else 0.0)
    return "; ".join(filter(None, (prefill, decode))) or None


def _differs(phase: str, ours_per_s: float | None, own_per_s: float | None, allowed_ms: float, ours_ms: float) -> str | None:
    """Return how our rate and the engine's own contradict each other; of the `ours_ms` by ours `allowed_ms` may be missing in its own."""
    if not ours_per_s or not own_per_s:
        return None
    apart_ms = abs(1 - ours_per_s / own_per_s) * ours_ms
    ratio = abs(own_per_s / ours_per_s - 1)
    if ratio <= OWN_RATIO or apart_ms <= allowed_ms:
        return None
    return f"{phase}: {ours_per_s:,.4g} tokens/s by our stamps, {own_per_s:,.4g} by the engine's own timings"


@_RULES.suspect(
    "as many layers are on the GPU as were asked for",
    "the rest runs on the CPU",
    "a smaller model or type, or fewer `gpu_layers`",
)
def _fewer_gpu_layers(facts: RunFacts, _: Generation) -> str | None:
    runtime_facts = facts.measured.runtime.facts
    requested_layers, got = runtime_facts.get("gpu_layers_asked", ""), runtime_facts.get("gpu_layers", "")
    if not (requested_layers.isdecimal() and got.isdecimal()) or int(got) >= int(requested_layers):
        return None
    return f"{got} of the {requested_layers} layers asked for are on the GPU: free its memory, or ask for fewer"


@_RULES.suspect(
    "all queries generate as many tokens as were asked for, unless the engine cannot ignore the end of text",
    "nobody gets fast by stopping early",
    "raise the context, or lower `--output-tokens`",
)
def _short_output(facts: RunFacts, generation: Generation) -> str | None:
    if not generation.ended_early or generation.ends_at == "end_of_text":
        return None
    queries = f"{generation.ended_early} of {facts.measured.latency.count} queries"
    return f"{queries} ended before {generation.output_tokens} tokens: let the engine ignore the end of text"


@_RULES.note(
    "answers have the length that was asked for",
    "figures per token are those of the tokens that came; a whole query and its energy compare only with answers of the same length",
    "let the engine ignore the end of text: `ignore_eos` in the server's file",
)
def _early_ends(_: RunFacts, generation: Generation) -> str | None:
    lengths = generation.output_lengths
    if not generation.ended_early or generation.ends_at == "length" or lengths is None or generation.prompts != SYNTHETIC:
        return None
    return (
        f"{generation.ended_early} answers ended before {generation.output_tokens} tokens: "
        f"they have {lengths.min_tokens} to {lengths.max_tokens} (mean {lengths.mean_tokens:.4g})"
    )


@_RULES.suspect(
    "the server streams: an answer's tokens come one after the other",
    "what is sent in one piece has no time to first token, and no time per token",
    "ask the server itself, not a proxy that collects its answer, and switch its streaming on",
)
def _unstreamed(_: RunFacts, generation: Generation) -> str | None:
    return generation.streaming_reason


@_RULES.suspect(
    "tokens are counted by the engine, not estimated from chunks of text",
    "a chunk may hold a part of a token, or several",
    "use an engine that reports `usage`",
)
def _estimated_tokens(_: RunFacts, generation: Generation) -> str | None:
    return "the engine states no number of tokens, so they are estimated from chunks of text" if generation.counts == "estimated" else None


@_RULES.suspect(
    "the median TPOT of the last third of queries is at most 10% above that of the first, except in an open loop",
    "all queries begin at the same depth, so a slower decode is a slower machine",
    "cool the board; end other programs",
)
def _decode_slowed(facts: RunFacts, generation: Generation) -> str | None:
    load = facts.measured.load
    if load is not None and load.queueing is not None:
        return None
    # Of prompts that differ in length queries begin at other depths.
    if generation.streaming_reason or generation.prompts != SYNTHETIC or (moments := _moments(facts, generation)) is None:
        return None
    each = tpot_ns(moments)
    thirds = np.array_split(each, 3)
    if thirds[-1].size < FEWEST_IN_THIRD:
        return None
    first, last = (float(np.median(third)) / 1e6 for third in (thirds[0], thirds[-1]))
    if last <= (1 + SLOWED_RATIO) * first:
        return None
    return (
        f"the median TPOT was {first:.4g} ms in the first third and {last:.4g} ms in the last, at the same depth: "
        "cool the board, or end what else runs"
    )


def _moments(facts: RunFacts, generation: Generation) -> TokenMoments | None:
    """Return the moments of all tokens by the raw samples; None where one of the series is missing."""
    return TokenMoments.of_series({entry.name: samples.unpack(entry) for entry in facts.measured.samples}, generation)


@_RULES.suspect(
    "prefill and decode add up to the energy of a request, within their uncertainties",
    "else one of them is wrong",
    "a longer prompt, more tokens, or a faster sensor",
)
def _parts_miss_request(facts: RunFacts, generation: Generation) -> str | None:
    energy, spent = generation.energy, next(iter(facts.energies), None)
    if energy is None or spent is None or spent.sensor != energy.sensor or energy.prefill_token is None or energy.decode_token is None:
        return None
    if generation.mean_prompt_tokens is None or (moments := _moments(facts, generation)) is None:
        return None
    parts = [(energy.prefill_token, generation.mean_prompt_tokens), (energy.decode_token, float(moments.later_tokens().mean()))]
    parts_mj = math.fsum(part.gross_mj * count for part, count in parts)
    u_mj = [None if part.gross_u_mj is None else part.gross_u_mj * count for part, count in parts] + [spent.gross_u_mj]
    known_mj = [u for u in u_mj if u is not None]
    if len(known_mj) < len(u_mj) or abs(parts_mj - spent.gross_mj) <= math.hypot(*known_mj):
        return None
    return (
        f"prefill and decode are {parts_mj:,.4g} mJ together, a request is "
        f"{spent.gross_mj:,.4g} mJ: the sensor ({spent.sensor}) does not follow the load as its delay says: use a faster one"
    )


@_RULES.note(
    "the engine states how many prompt tokens came from a cache",
    "every prompt differs, but only the engine knows what it took from a cache",
    "use an engine that reports it",
)
def _cache_unknown(_: RunFacts, generation: Generation) -> str | None:
    if generation.cached_tokens is not None:
        return None
    return "the server does not state how many prompt tokens came from a cache: the figures take it that none did"


@_RULES.note(
    "tokens come one by one", "of tokens that come together only the mean time is known", "ask the server to stream token by token"
)
def _joined_tokens(_: RunFacts, generation: Generation) -> str | None:
    if generation.stamped_tokens_max <= 1 + (generation.hidden_reasoning_tokens or 0) or generation.streaming_reason:
        return None
    together = f"up to {generation.stamped_tokens_max} tokens came together: there is no inter-token latency"
    return f"{together}, and TPOT takes those of the first piece by its text" if generation.counts == "usage" else together


@_RULES.note(
    "reasoning is streamed",
    "thoughts that are not come before the first token: TTFT holds their time, and there are no rate of the prefill and no ITL",
    "let the server stream it",
)
def _hidden_reasoning(_: RunFacts, generation: Generation) -> str | None:
    hidden = generation.hidden_reasoning_tokens
    return f"up to {hidden} reasoning tokens of an answer are not streamed: TTFT holds their time" if hidden else None


RULES = _RULES.given(lambda facts: (facts, facts.measured.generation) if facts.measured.generation is not None else None)
