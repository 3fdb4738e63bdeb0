"""Facts about the rules on generated text: each with a run that violates it and one that just does not."""

from typing import Any

import msgspec
import numpy as np

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_conditions import Condition, Environment, RuntimeInfo, Scheduling
from edgemeter.agent.contract.record_figures import Load, Stage
from edgemeter.agent.contract.record_generation import LanguageModel, TokenEnergy, TokenLengths
from edgemeter.agent.engine.job import MeasuredRun
from edgemeter.agent.engine.scenarios.generation_statistics import bandwidths_mb_per_s
from edgemeter.agent.engine.scenarios.latency_statistics import summarise_latency
from edgemeter.agent.verdict import judge as verdict
from tests.fixtures.measured_factory import measured
from tests.fixtures.record_factory import make_energy, make_environment, make_generation, make_generation_energy
from tests.fixtures.rows import table_row

QUERIES, TOKENS = 30, 11
TTFT_NS, STEP_NS = 100_000_000, 10_000_000


def series(tpot_ns: list[int]) -> tuple[Any, ...]:
    """Return the raw samples of queries with these times per token."""
    token = np.array([TTFT_NS + step * n for step in tpot_ns for n in range(TOKENS)], dtype=np.int64)
    last = np.array([TTFT_NS + step * (TOKENS - 1) for step in tpot_ns], dtype=np.int64)
    return (
        samples.pack("latency", "ns", last),
        samples.pack("first_token", "ns", np.full(len(tpot_ns), TTFT_NS)),
        samples.pack("token", "ns", token),
        samples.pack("output_tokens", "tokens", np.full(len(tpot_ns), TOKENS)),
    )


def generating(tpot_ns: list[int] | None = None, runtime: dict[str, Any] | None = None, **changes: Any) -> MeasuredRun:
    """Return a sound run of 512 prompt tokens at 5,120/s and 10 more at 100/s, by a model of a million weights, with these changes."""
    described = {"name": "llama", "package": "xllamacpp", "version": "1", "backend": "cpu", "threads": 4}
    return measured(
        generation=make_generation(**changes),
        samples=series([STEP_NS] * QUERIES if tpot_ns is None else tpot_ns),
        runtime=RuntimeInfo(**(described | (runtime or {}))),
        scheduling=Scheduling(window_ms=6000.0, cores=4),
    )


def conditions(swapped_mb: float = 0.0) -> list[Condition]:
    """Return a board at 2 GHz of whose memory this much went to swap."""
    return [Condition(when="before", clock_max_hz=2e9, swap_used_mb=1.0), Condition(when="after", swap_used_mb=1.0 + swapped_mb)]


def environment(**changes: Any) -> Environment:
    """Return a Raspberry Pi 5."""
    return msgspec.structs.replace(make_environment(), **({"board": "Raspberry Pi 5 Model B Rev 1.0", "arch": "aarch64"} | changes))


def violated(run: MeasuredRun, swapped_mb: float = 0.0, **board: Any) -> dict[str, str]:
    """Return the evidence by rule, notes too."""
    judged = verdict.judge(run, conditions(swapped_mb), environment(**board))
    return dict(reason.split(": ", 1) for reason in (*judged.reasons, *judged.notes))


def test_a_sound_run_violates_no_rule_on_generation():
    """What the factory builds is the base that the others change."""
    rule_names = {rule.name for rule in verdict.generation_rules.RULES}
    assert not rule_names & set(violated(generating()))


LENGTHS = TokenLengths(min_tokens=3, p50_tokens=50.0, mean_tokens=60.5, max_tokens=128)
# 4 cores x 2 GHz x 256 = 2,048 Gop/s; at 5,120 tokens/s x 2 that is 200 million weights.
JUST = 200_000_000


def test_a_rule_is_violated_by_one_run_and_just_not_by_another():
    """The border lies where the rule says."""
    for rule, violating, just_not in [
        ("cached-prompt", {"cached_tokens": 2}, {"cached_tokens": 1}),
        ("cached-prompt", {"cached_tokens": 22, "template_tokens": 20}, {"cached_tokens": 21, "template_tokens": 20}),
        ("failed-answers", {"failed_queries": 3, "failures": {"http 429": 3}}, {"failed_queries": 2}),
        ("failed-answers", {"failed_queries": 3, "failures": {"no token": 3}}, {"failed_queries": 0}),
        # To a question an empty answer is one, and is scored.
        (
            "failed-answers",
            {"failed_queries": 6, "failures": {"no token": 3, "timeout": 3}, "prompts": "file"},
            {"failed_queries": 5, "failures": {"no token": 3, "timeout": 2}, "prompts": "file"},
        ),
        ("unstreamed", {"streaming_reason": "it came in one piece", "ttft": None}, {}),
        ("early-ends", {"ended_early": 1, "ends_at": "end_of_text", "output_lengths": LENGTHS}, {"ended_early": 0}),
        ("cache-unknown", {"cached_tokens": None}, {"cached_tokens": 0}),
        ("short-output", {"ended_early": 1}, {"ended_early": 1, "ends_at": "end_of_text"}),
        ("estimated-tokens", {"counts": "estimated"}, {"counts": "usage"}),
        ("served", {"is_local": False}, {"is_local": True}),
        ("joined-tokens", {"stamped_tokens_max": 2}, {"stamped_tokens_max": 1}),
        (
            "joined-tokens",
            {"stamped_tokens_max": 258, "hidden_reasoning_tokens": 256},
            {"stamped_tokens_max": 257, "hidden_reasoning_tokens": 256},
        ),
        ("hidden-reasoning", {"hidden_reasoning_tokens": 1}, {}),
        (
            "prefill-above-compute",
            {"model": LanguageModel(read_parameters=JUST + 1_000_000)},
            {"model": LanguageModel(read_parameters=JUST)},
        ),
        ("decode-above-bandwidth", {"weight_bandwidth_mb_per_s": 17_101.0}, {"weight_bandwidth_mb_per_s": 17_100.0}),
        ("own-timings-differ", {"own_decode_tokens_per_s": 106.0}, {"own_decode_tokens_per_s": 104.9}),
        ("own-timings-differ", {"own_prefill_tokens_per_s": 5400.0}, {"own_prefill_tokens_per_s": 5370.0}),
        (
            "fewer-gpu-layers",
            {"runtime": {"facts": {"gpu_layers_asked": "25", "gpu_layers": "24"}}},
            {"runtime": {"facts": {"gpu_layers_asked": "25", "gpu_layers": "25"}}},
        ),
        (
            "decode-slowed",
            {"tpot_ns": [STEP_NS] * 20 + [STEP_NS * 112 // 100] * 10},
            {"tpot_ns": [STEP_NS] * 20 + [STEP_NS * 110 // 100] * 10},
        ),
    ]:
        assert rule in violated(generating(**violating)), f"{rule!r}, {violating!r}, {just_not!r}"
        assert rule not in violated(generating(**just_not)), f"{rule!r}, {violating!r}, {just_not!r}"


def test_users_who_come_at_random_slow_no_machine():
    """How many are under way wanders, and TPOT with it; one user after the other has the same steps."""
    run = generating([STEP_NS] * 20 + [STEP_NS * 112 // 100] * 10, counts="usage")
    assert "decode-slowed" in violated(run)
    load = Load(samples_per_query=1, samples=30, queueing=Stage(count=30, mean_ms=0.0, p50_ms=0.0, p90_ms=0.0))
    assert "decode-slowed" not in violated(msgspec.structs.replace(run, load=load))


def test_users_may_wait_a_twentieth_of_their_time():
    """Two users of a timed part of so long; what waits is the sum of both."""
    run = generating()
    twentieth_ms = 2 * run.timed.length_ns / 1e6 / 20
    for paused_ms, is_violated in ((1.01 * twentieth_ms, True), (0.99 * twentieth_ms, False)):
        load = Load(samples_per_query=1, samples=30, concurrency=2, pauses=1, paused_ms=paused_ms)
        assert ("users-waited" in violated(msgspec.structs.replace(run, load=load))) == is_violated
        assert "users-waited" not in violated(msgspec.structs.replace(run, load=msgspec.structs.replace(load, concurrency=None)))


def test_real_prompts_differ_and_end_when_they_end():
    """Each query is another: neither an end before the limit, nor other depths, nor latencies far apart speak against the run."""
    slowing = [STEP_NS] * 20 + [STEP_NS * 112 // 100] * 10
    apart = summarise_latency(np.random.default_rng(1).permutation(np.repeat((5_000_000, 9_000_000), 60)))
    ended = {"ended_early": 1, "ends_at": "end_of_text", "output_lengths": LENGTHS}
    for prompts, rules in (("synthetic", {"early-ends", "decode-slowed", "wide-bounds"}), ("questions.jsonl", set())):
        run = msgspec.structs.replace(generating(slowing, prompts=prompts, **ended), latency=apart)
        assert set(violated(run)) & {"early-ends", "short-output", "decode-slowed", "wide-bounds"} == rules


def test_swapping_makes_a_generating_run_invalid():
    """16 MB are too many; models of one call are only suspect."""
    assert "weights-swapped" in violated(generating(), swapped_mb=16.0)
    assert "weights-swapped" not in violated(generating(), swapped_mb=15.9)
    assert "weights-swapped" not in violated(measured(), swapped_mb=100.0)


def test_where_a_fact_is_unknown_or_beside_the_point_nothing_is_violated():
    """Unknown boards, GPUs, servers elsewhere, speculation and weights that caches hold have no known limit."""
    fast = {"weight_bandwidth_mb_per_s": 90_000.0, "prefill_tokens_per_s": 1e9}
    assert {"decode-above-bandwidth", "prefill-above-compute"} <= set(violated(generating(**fast)))
    assert "decode-above-bandwidth" not in violated(generating(**fast), board="some board")
    assert "decode-above-bandwidth" not in violated(generating(**fast, runtime={"backend": "gpu"}), board="some board")
    assert "decode-above-bandwidth" not in violated(generating(**fast, model=LanguageModel(weights_mb=63.0)))
    assert "decode-above-bandwidth" not in violated(generating(**fast | {"weight_bandwidth_mb_per_s": None}, speculative="draft model"))
    assert "prefill-above-compute" not in violated(generating(**fast, runtime={"backend": "gpu"}))
    assert not {"decode-above-bandwidth", "prefill-above-compute"} & set(violated(generating(**fast, is_local=False)))


def test_what_our_loop_costs_a_tiny_model_is_no_contradiction():
    """At 0.1 ms a token 0.03 ms are 30%, and still only our own loop."""
    tiny = {"decode_tokens_per_s": 10_000.0, "own_decode_tokens_per_s": 14_000.0}
    assert "own-timings-differ" not in violated(generating(**tiny))
    assert "own-timings-differ" in violated(generating(**tiny | {"own_decode_tokens_per_s": 21_000.0}))
    over_network = {"own_prefill_tokens_per_s": 6000.0}
    assert "own-timings-differ" in violated(generating(**over_network))
    assert "own-timings-differ" not in violated(generating(**over_network, network_round_trip_ms=15.0))


def test_steps_that_an_engine_computes_before_it_hands_the_first_token_over_are_no_contradiction():
    """Of the 100 ms by our stamps 85.3 are the engine's prefill: two steps of 10 ms may be missing, none may without the fact."""
    early = {"own_prefill_tokens_per_s": 6000.0}
    assert "own-timings-differ" not in violated(generating(**early, runtime={"facts": {"ttft_decode_steps": "2"}}))
    assert "own-timings-differ" in violated(generating(**early, runtime={"facts": {"ttft_decode_steps": "1"}}))


def test_of_a_prompt_partly_from_a_cache_only_the_processed_tokens_take_time():
    """Of 256 tokens 33 are processed, in 3.3 ms by our stamps and in 3.0 ms by the engine's: 0.3 ms, as our own work takes."""
    cached = {
        "prompt_tokens": 256, "cached_tokens": 223, "ttft": summarise_latency(np.full(30, 3_300_000)),
        "prefill_tokens_per_s": 33 / 3.3e-3,
    }  # fmt: skip
    assert "own-timings-differ" not in violated(generating(**cached, own_prefill_tokens_per_s=33 / 3.0e-3))
    assert "own-timings-differ" in violated(generating(**cached, own_prefill_tokens_per_s=33 / 2.2e-3))


def test_parts_that_miss_the_request_make_a_run_suspect():
    """Prefill and decode are 20 J: a request of 22 J has 2 J more than their uncertainties allow, one of 20.5 J has not."""
    tokens = make_generation_energy(
        prefill_token=TokenEnergy(gross_mj=20.0, gross_u_mj=1.0), decode_token=TokenEnergy(gross_mj=976.0, gross_u_mj=20.0)
    )
    run = generating(energy=tokens)
    for gross_mj, gross_u_mj, is_violated in [(22_000.0, 500.0, True), (20_500.0, 500.0, False), (22_000.0, None, False)]:
        with table_row(gross_mj):
            spent = make_energy(sensor="ina219", gross_mj=gross_mj, gross_u_mj=gross_u_mj)
            judged = verdict.judge(run, conditions(), environment(), energies=(spent,))
            assert any(reason.startswith("parts-miss-request") for reason in judged.reasons) == is_violated


def decoding(tokens_per_s: float, weights_mb: float, kv_token_bytes: float | None = None) -> MeasuredRun:
    """Return a run that decodes a model of this size at this rate, behind 1,024 tokens; its bandwidths are worked out as those of a run."""
    model = LanguageModel(weights_mb=weights_mb, kv_token_bytes=kv_token_bytes)
    rates = {"decode_tokens_per_s": tokens_per_s, "own_decode_tokens_per_s": None, "prompt_tokens": 1024}
    read, with_cache = bandwidths_mb_per_s(make_generation(**rates, model=model), overlap=False)
    return generating(**rates, model=model, weight_bandwidth_mb_per_s=read, read_bandwidth_mb_per_s=with_cache)


def bandwidth(run: MeasuredRun, **machine: Any) -> str | None:
    """Return the evidence against a rate of decoding on a Raspberry Pi 5, whose memory gives 17.1 GB/s, or on another machine."""
    return next((text for name, text in violated(run, **machine).items() if name == "decode-above-bandwidth"), None)


def test_6_4_tb_per_s_are_beyond_a_guests_memory():
    """A machine without a known board has the bound of any processor's memory."""
    assert "no processor's memory" in bandwidth(decoding(6400, 1000.0), board=None)
    assert bandwidth(decoding(3000, 1000.0), board=None) is None


def test_what_the_caches_hold_is_not_read_from_memory():
    """Weights of 100 MB lie in caches of 105 MB; of 200 MB a token reads at least 95 MB from memory, of a 512 MB cache none."""
    assert bandwidth(decoding(1000, 100.0), cache_mb=105.0) is None
    assert bandwidth(decoding(170, 200.0), cache_mb=105.0) is None
    assert "95" in bandwidth(decoding(1000, 200.0), cache_mb=105.0)
    assert bandwidth(decoding(1000, 400.0), cache_mb=512.0) is None


def test_the_cache_of_keys_and_values_is_read_too():
    """At a depth of 1,024 a model of 100 MB with 100 kB a token reads 203 MB."""
    assert bandwidth(decoding(150, 100.0)) is None
    assert "203 MB" in bandwidth(decoding(150, 100.0, kv_token_bytes=100_000.0))
