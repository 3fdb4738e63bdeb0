"""Facts about claims: what people write becomes rows, and what is not understood is refused, never guessed."""

import contextlib
import random

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published.claim import EXAMPLES, parse_claim
from edgemeter.collector.published.judge import judge
from edgemeter.collector.published.row import not_sourced

TODAY = {"date": "2026-11-26"}


def facts_of(text):
    """Return of each row of a claim the facts that it states."""
    usual = {"source", "version", "date", "address", "conditions"}
    return [{name: value for name, value in msgspec.to_builtins(row).items() if name not in usual} for row in parse_claim(text, TODAY)]


CLAIMS = {
    "Llama 3.2 3B Q4 on Raspberry Pi AI HAT+ 2: 20 tok/s": [
        {"model": "Llama 3.2 3B", "precision": "Q4", "device": "Raspberry Pi AI HAT+ 2", "figure": "tokens", "value": 20.0, "unit": "tok/s"}
    ],
    "YOLOv8n INT8 640 on Jetson Orin Nano (25W): 3.49 ms, 12 W": [
        {"model": "YOLOv8n", "precision": "INT8", "input_size": "640", "device": "Jetson Orin Nano", "power_mode": "25W", **figure}
        for figure in ({"figure": "latency", "value": 3.49, "unit": "ms"}, {"figure": "power", "value": 12.0, "unit": "W"})
    ],
    "Qwen2.5-1.5B w8a8 on RK3588: 378 ms TTFT, 16.69 t/s, prompt 128, output 64, speculative off": [
        {
            "model": "Qwen2.5-1.5B", "precision": "w8a8", "device": "RK3588", "prompt_tokens": 128, "output_tokens": 64,
            "speculative": "off", **figure,
        }
        for figure in ({"figure": "ttft", "value": 378.0, "unit": "ms"}, {"figure": "tokens", "value": 16.69, "unit": "t/s"})
    ],
    "MobileNetV2 on Coral: 2.6 ms p99 over 50 queries": [
        {"model": "MobileNetV2", "device": "Coral", "figure": "latency", "value": 2.6, "unit": "ms", "statistic": "p99", "count": 50}
    ],
    "m on d: 0.2585 J/token at 6.37 W": [
        {"model": "m", "device": "d", "figure": "energy-output-token", "value": 0.2585, "unit": "J/token"},
        {"model": "m", "device": "d", "figure": "power", "value": 6.37, "unit": "W"},
    ],
    "llama3.2:3b on Raspberry Pi 5 8 GB: 4.61 t/s and 13.9 W peak at the wall": [
        {"model": "llama3.2:3b", "device": "Raspberry Pi 5 8 GB", "figure": "tokens", "value": 4.61, "unit": "t/s"},
        {
            "model": "llama3.2:3b", "device": "Raspberry Pi 5 8 GB", "figure": "power", "value": 13.9, "unit": "W", "statistic": "max",
            "scope": "wall-ac",
        },
    ],
    "m on d: 133 t/s prefill, 1546 MB memory, mAP 61 % over 4 images": [
        {"model": "m", "device": "d", "figure": "prefill-tokens", "value": 133.0, "unit": "t/s"},
        {"model": "m", "device": "d", "figure": "memory", "value": 1546.0, "unit": "MB"},
        {"model": "m", "device": "d", "figure": "accuracy", "value": 61.0, "unit": "%", "images": 4, "accuracy_metric": "mAP"},
    ],
    "m on d: 20 tokens per second with speculative decoding, runtime llama.cpp, 4 threads, batch 1, 25W mode": [
        {
            "model": "m", "device": "d", "figure": "tokens", "value": 20.0, "unit": "tokens/s", "speculative": "on", "runtime": "llama.cpp",
            "threads": 4, "batch": 1, "power_mode": "25W",
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize("text", CLAIMS)
def test_a_claim_becomes_its_figures_with_what_it_states(text):
    """What it does not state is absent."""
    assert facts_of(text) == [pytest.approx(facts) for facts in CLAIMS[text]]


@pytest.mark.parametrize(
    ("figure", "value", "low", "high"),
    [
        ("18-22 t/s", 18.0, 18.0, 22.0),
        ("18 to 22 tokens/s", 18.0, 18.0, 22.0),
        ("3-5 ms", 5.0, 3.0, 5.0),
        ("50+ fps", 50.0, None, None),
        ("at least 20 t/s", 20.0, None, None),
        ("~20 t/s", 20.0, None, None),
    ],
)
def test_a_range_counts_at_the_end_that_is_easier_to_reach(figure, value, low, high):
    """Whoever calls it impossible has read it as favourably as it can be."""
    (row,) = parse_claim(f"m on d: {figure}", TODAY)
    assert (row.value, row.low, row.high) == (value, low, high)


@pytest.mark.parametrize(
    ("figure", "value", "low", "high"),
    [
        ("2 tokens/J", 0.5, None, None),
        ("5 tokens per joule", 0.2, None, None),
        # 1 / 3.87 = 0.25840 and 1 / 3 = 0.33333, as exact as they are stated.
        ("3.87 tok/J", 0.258, None, None),
        ("3 tokens/J", 0.33, None, None),
        ("2-4 tokens/J", 0.5, 0.25, 0.5),
    ],
)
def test_tokens_per_joule_are_an_energy_per_token(figure, value, low, high):
    """Turned over; the claim's words are in the conditions."""
    (row,) = parse_claim(f"m on d: {figure}", TODAY)
    assert (row.figure, row.unit, row.value, row.low, row.high) == ("energy-output-token", "j/token", value, low, high)
    assert figure in row.conditions


def test_energy_per_token_may_be_in_watt_hours():
    """0.2 mWh = 720 mJ."""
    (row,) = parse_claim("m on d: 0.2 mWh/token", TODAY)
    assert (row.figure, row.canonical) == ("energy-output-token", (pytest.approx(720.0), "mJ"))


def test_an_idle_power_is_no_figure_of_the_model():
    """It stays in the conditions, beside the figures."""
    for idle in ("6 W idle", "6 W at idle", "idle power 6 W"):
        (row,) = parse_claim(f"m on d: 7 W, {idle}", TODAY)
        assert (row.value, row.conditions) == (7.0, f"m on d: 7 W, {idle}")


def test_a_number_follows_the_rule_of_the_tables():
    """A thousand only where nothing else can be meant; a count has no decimals."""
    assert parse_claim("m on d: 1,234.5 ms over 5,000 queries", TODAY)[0].value == 1234.5
    assert parse_claim("m on d: 1,234,567 ms over 5,000 queries", TODAY)[0].count == 5000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("m on d: 1,234 ms", "'1,234' may be a thousand or a decimal: write 1234 or 1.234"),
        ("m on d: 5 ms, batch 4, batch 1", "batch is stated twice, as 4 and as 1"),
        ("m INT8 on d: 5 ms, precision FP16", "precision is stated twice, as INT8 and as FP16"),
        ("m on d: 6 W idle", "conditions and no figure"),
        ("m: 5 ms", "it has no MODEL, DEVICE and FIGURE"),
        ("m on d: 5 parsec", "'5 parsec' is neither a figure with its unit"),
        ("m on d: 20 t/s with magic", "'magic' is not understood"),
        ("m on d: 5 MB", "does not state what it measures"),
        ("m on d: batch 1", "conditions and no figure"),
        ("m on d: 5 W prefill", "not a unit of prefill-tokens"),
        ("m on d: 22-18 t/s", "ends below its start"),
        ("m on d: 0 t/s", "not a number above 0"),
    ],
)
def test_what_is_not_understood_is_refused_in_one_line(text, reason):
    """With the shape of a claim, and one that is understood."""
    with pytest.raises(ConfigError, match=reason) as refusal:
        parse_claim(text, TODAY)
    assert "Write: MODEL [PRECISION]" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_examples_that_a_refusal_shows_are_understood():
    """Whoever copies one has a claim."""
    assert all(parse_claim(text, TODAY) for text in EXAMPLES)


def test_a_claim_without_an_address_cannot_be_kept():
    """It is judged; a figure that stays needs a source that can be looked up, its own or one that is given."""
    text = "m on d: 5 ms"
    assert not_sourced(parse_claim(text, TODAY)[0])
    for row in (*parse_claim(text, {**TODAY, "address": "https://example.org/x"}), *parse_claim(f"{text} (https://example.org/x)", TODAY)):
        assert (row.address, row.value, not_sourced(row)) == ("https://example.org/x", 5.0, None)


def test_what_a_claim_states_goes_before_what_is_given():
    """Options hold where it states none."""
    (row,) = parse_claim("m on d: 5 ms, batch 8", {**TODAY, "batch": 1, "runtime": "ncnn", "source": "a blog"})
    assert (row.batch, row.runtime, row.source) == (8, "ncnn", "claim")


def test_no_text_ends_in_another_error():
    """Claims with characters changed: each is understood and judged, or refused."""
    draw = random.Random(1)  # noqa: S311 - letters, no secrets
    for _ in range(500):
        letters = list(draw.choice(EXAMPLES))
        for _ in range(draw.randint(1, 4)):
            letters[draw.randrange(len(letters))] = draw.choice("0.,-:/() %xµ\0on")
        with contextlib.suppress(ConfigError):
            assert all(judgement.state for judgement in judge(parse_claim("".join(letters), TODAY)))
