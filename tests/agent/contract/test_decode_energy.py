"""Facts about the energy of decoding.

It is the difference of two runs, and is stated where they differ in their output tokens alone.
"""

import pytest

from edgemeter.agent.contract.decode_energy import decode_energy, decode_token_mj
from edgemeter.agent.contract.record_figures import Load
from tests.fixtures.record_factory import make_energy, make_generation, make_latency, make_record
from tests.fixtures.rows import table_row


def generating(output_tokens, gross_mj=1000.0, ttft_ms=100.0, energy=None, record=None, **changes):
    """Return a run of requests with so many output tokens, of this energy ± 1%."""
    text = make_generation(
        output_tokens=output_tokens, ttft=make_latency(mean_ms=ttft_ms), **changes
    )
    spent = {"gross_mj": gross_mj, "gross_u_mj": gross_mj / 100, "mean_power_w": 10.0}
    return make_record(
        **({"generation": text, "energy": make_energy(**(spent | (energy or {})))} | (record or {}))
    )


ONE_TOKEN = generating(1)


def test_decoding_is_the_difference_by_the_tokens_after_the_first():
    """Runs of 101 tokens and one token with 21 J and 1 J give 200 mJ a token.

    Its uncertainty is the root of 210² + 10² over 100.
    """
    decode_mj, u_mj = decode_energy(generating(101, 21_000.0), ONE_TOKEN)
    assert (decode_mj, u_mj) == pytest.approx((200.0, 2.102), rel=1e-3)


def test_prefills_that_took_other_times_widen_the_interval():
    """A difference of 20 ms at 10 W adds 200 mJ; it is unknown for answers in one piece."""
    assert decode_energy(generating(101, 21_000.0, ttft_ms=120.0), ONE_TOKEN)[1] == pytest.approx(
        2.902, rel=1e-3
    )
    assert decode_token_mj((21_000.0, 210.0), (1000.0, 10.0), 101, None) == (200.0, None)
    assert decode_token_mj((21_000.0, None), (1000.0, 10.0), 101, 0.0) == (200.0, None)


def test_runs_that_differ_in_more_than_output_tokens_show_no_decoding():
    """A difference in prompts, sensor, device or provenance rules the comparison out.

    So do several tokens in both runs, a run without energy, and one without text.
    """
    long_run = generating(101, 21_000.0)
    for other in (
        long_run,
        generating(2),
        generating(1, prompt_tokens=128),
        generating(1, prompts="questions.jsonl", prompts_sha256="0" * 64),
        generating(1, energy={"sensor": "other"}),
        generating(1, record={"provenance": {"latency": "measured", "energy": "replayed"}}),
        generating(1, record={"device": "pi-2"}),
        generating(1, record={"energy": None}),
        make_record(),
    ):
        with table_row(other.generation and other.generation.lengths):
            assert decode_energy(long_run, other) is None
    assert decode_energy(ONE_TOKEN, ONE_TOKEN) is None
    open_loop = {"load": Load(samples=80, target_per_s=2.0), "scenario": "poisson"}
    assert decode_energy(generating(101, record=open_loop), generating(1, record=open_loop)) is None


def test_prompts_for_a_server_are_about_as_long():
    """Texts that are made for a server have roughly the number of tokens that was asked for.

    Where the count is unknown no energy of decoding is stated.
    """
    long_run = generating(101, 21_000.0, counts="usage", prompt_tokens=515)
    lengths = {512: True, 128: False, None: False}
    for prompt_tokens, is_alike in lengths.items():
        with table_row(prompt_tokens):
            assert (
                decode_energy(long_run, generating(1, counts="usage", prompt_tokens=prompt_tokens))
                is not None
            ) == is_alike
