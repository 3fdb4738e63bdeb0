import pytest

from edgemeter.collector.published.rules import evidence_of
from tests.fixtures.published_rows import published_row


def judge(rule, *figures, device="Raspberry Pi 5", model="a model", **fields):
    """Return the state that a rule finds of the first of several figures of a case, None without."""
    rows = [published_row(figure, value, model, device, **(fields | dict(*row_fields))) for figure, value, *row_fields in figures]
    return next((entry.state for entry in evidence_of(rows[0], rows[1:]) if entry.rule == rule), None)


@pytest.mark.parametrize(
    ("rate", "latency", "fields", "state"),
    [
        (12.5, ("latency", 80.0), {}, None),
        (14.0, ("latency", 80.0), {}, None),
        (50.0, ("latency", 80.0), {}, "unclear"),
        (50.0, ("latency", 80.0), {"batch": 4}, None),
        (50.0, ("latency-mean", 80.0), {"batch": 1, "concurrency": 4, "backend": "cpu"}, None),
        (50.0, ("latency-mean", 80.0), {"batch": 1, "concurrency": 1, "backend": "cpu"}, "impossible"),
        (50.0, ("latency-mean", 80.0), {"batch": 1, "concurrency": 1, "backend": "npu"}, "unclear"),
        (50.0, ("latency", 80.0), {"batch": 1, "concurrency": 1, "backend": "cpu"}, "unclear"),
    ],
)
def test_throughput_by_latency_is_how_many_are_on_their_way(rate, latency, fields, state):
    """Little's law holds for means; a pipeline that is not stated explains more."""
    assert judge("throughput-above-latency", ("throughput", rate), latency, **fields) == state


@pytest.mark.parametrize(
    ("ttft_ms", "fields", "state"),
    [
        # 1,024 / 133 = 7.70 s.
        (7800.0, {}, None),
        (6500.0, {}, None),
        (780.0, {}, "unclear"),
        (780.0, {"conditions": "prefix cache"}, "unclear"),
        (780.0, {"concurrency": 8}, "unclear"),
    ],
)
def test_the_first_token_comes_after_the_prompt(ttft_ms, fields, state):
    """Unless a cache had it."""
    assert judge("first-token-before-prompt", ("ttft", ttft_ms), ("prefill-tokens", 133.0), prompt_tokens=1024, **fields) == state


@pytest.mark.parametrize(
    ("figure", "rate", "fields", "state"),
    [
        ("tokens", 20.0, {}, None),
        ("tokens", 22.0, {}, None),
        ("tokens", 160.0, {}, "unclear"),
        ("tokens", 160.0, {"batch": 8}, None),
        ("tokens", 160.0, {"batch": 1, "speculative": "off"}, "impossible"),
        ("user-tokens", 160.0, {"batch": 8, "speculative": "off"}, "impossible"),
        # A time between two chunks is that of several tokens where decoding is speculative.
        ("tokens", 160.0, {"batch": 1}, "unclear"),
        ("tokens", 160.0, {"batch": 1, "speculative": "on"}, "unclear"),
        ("output-tokens", 12.0, {}, None),
    ],
)
def test_tokens_are_as_fast_as_their_time(figure, rate, fields, state):
    """50 ms a token are 20 tokens/s of each user."""
    assert judge("tokens-faster-than-their-time", (figure, rate), ("tpot", 50.0), **fields) == state


@pytest.mark.parametrize(
    ("device", "memory", "unit", "state"),
    [
        ("Raspberry Pi 5 8GB", 7.9, "GB", "plausible"),
        ("Raspberry Pi 5 8GB", 8.5, "GB", "plausible"),
        ("Raspberry Pi 5 8GB", 9.1, "GB", "impossible"),
        ("Raspberry Pi 5 16GB", 9.1, "GB", "plausible"),
        ("Raspberry Pi 5", 9.1, "GB", "plausible"),
        ("Raspberry Pi 5", 18.1, "GB", "impossible"),
        ("Raspberry Pi 5 8GB with 64 GB card", 9.1, "GB", "plausible"),
        ("Raspberry Pi 5 8GB with AI HAT+ 2", 15.1, "GiB", "plausible"),
        ("Raspberry Pi 5 with eGPU", 30.5, "GB", None),
        ("Mac mini", 30.5, "GB", "unclear"),
    ],
)
def test_memory_is_part_of_the_ram(device, memory, unit, state):
    """That of the name, else the most that the board is sold with; an accelerator's counts too."""
    assert judge("memory-beyond-ram", ("memory", memory, {"unit": unit}), device=device) == state


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ("with 8 GB of swap on an SSD", "unclear"),
        ("zram", "unclear"),
        ("no swap", "impossible"),
        ("swap disabled", "impossible"),
        ("not stated", "impossible"),
    ],
)
def test_swap_holds_what_the_ram_does_not(conditions, state):
    """6 GB of 4: where it is stated, part of the use lies outside."""
    memory = ("memory", 6.0, {"unit": "GB", "conditions": conditions})
    assert judge("memory-beyond-ram", memory, device="Jetson Nano 4GB") == state


def test_less_memory_than_weights_is_unclear():
    """3.75 GB of weights in 1.1: the file may be mapped."""
    assert judge("memory-beyond-ram", ("memory", 1100.0), model="Llama 3.1 8B", precision="int4") == "unclear"
    assert judge("memory-beyond-ram", ("memory", 4200.0), model="Llama 3.1 8B", precision="int4") == "plausible"
