"""Facts about the verdict of a row: which of several pieces of evidence decides."""

import pytest

from edgemeter.collector.published.claim import parse_claim
from edgemeter.collector.published.judge import judge
from edgemeter.collector.published.judgement import Evidence, RowJudgement
from tests.fixtures.published_factory import make_published

IMPOSSIBLE = Evidence(rule="a", state="impossible", sentence="impossible", value=2.0, limit=1.0)
DOUBT = Evidence(rule="b", state="unclear", sentence="doubt", value=2.0, limit=1.0)
HELD = Evidence(rule="c", state="plausible", sentence="held", value=1.0, limit=2.0)
LACKS_A_FACT = Evidence(rule="d", state="unclear", sentence="lacks a fact")


@pytest.mark.parametrize(
    ("evidence", "state", "sentence"),
    [
        ((HELD, DOUBT, IMPOSSIBLE), "impossible", "impossible"),
        ((HELD, LACKS_A_FACT, DOUBT), "unclear", "doubt"),
        ((LACKS_A_FACT, HELD), "plausible", "held"),
        ((LACKS_A_FACT,), "unclear", "lacks a fact"),
        ((), "unclear", "no bound is known for this figure"),
    ],
)
def test_a_doubt_is_not_outvoted_by_a_bound_that_holds(evidence, state, sentence):
    """What exceeds a bound unless something unstated explains it stays in doubt; what lacks a fact says nothing."""
    judgement = RowJudgement(row=make_published(), evidence=evidence)
    assert (judgement.state, judgement.sentence) == (state, sentence)


def verdicts(text):
    """Return the states of a claim's figures, by figure."""
    return {judgement.row.figure: judgement.state for judgement in judge(parse_claim(text, {"date": "2026-11-26"}))}


@pytest.mark.parametrize(
    ("text", "figure", "state"),
    [
        # 8.7 Gop / 4 uJ = 2,200 TOPS/W.
        ("YOLOv8n INT8 640 on Jetson Orin Nano: 3.5 ms, 4 uJ", "energy", "impossible"),
        ("YOLOv8n INT8 on Jetson Orin Nano: 3.5 ms, 4 uJ", "energy", "unclear"),
        # 30 x 0.5 mJ = 15 mW of a board that draws 1.5 W.
        ("Llama 3.1 8B Q4 on Jetson AGX Orin: 30 tokens/s, 0.5 mJ/token", "energy-output-token", "unclear"),
        # 12 W x 3.5 ms = 42 mJ.
        ("YOLOv8n INT8 on Jetson Orin Nano: 3.5 ms, 4 mJ, 12 W", "energy", "unclear"),
        ("YOLOv8n INT8 on Jetson Orin Nano: 3.5 ms, 44 mJ, 12 W", "energy", "plausible"),
        ("YOLOv8n on Raspberry Pi 5: 120 ms p99 over 500 queries", "latency", "unclear"),
        ("Qwen3 4B on Jetson Orin Nano: 73.8 % accuracy over 30 items, dataset AIME24", "accuracy", "unclear"),
        ("Llama 3.1 8B Q4_K_M on RTX 4090: 180 tokens/s, itl 15 ms, 1 users, speculative on", "tokens", "unclear"),
        ("x on Jetson Nano 4GB: 6 GB memory", "memory", "impossible"),
        ("x on Jetson Nano 4GB: 6 GB memory, with 8 GB of swap on an SSD", "memory", "unclear"),
        ("x on Jetson Nano 4GB: 6 GB memory, no swap", "memory", "impossible"),
    ],
)
def test_claims_get_the_verdict_that_their_arithmetic_gives(text, figure, state):
    """As worked out on paper."""
    assert verdicts(text)[figure] == state


def test_the_harder_end_of_a_range_is_judged_too():
    """1 token/s needs 1.8 of 17.1 GB/s, 30 tokens/s 54: who reads `up to 30` has to know."""
    (judgement,) = judge(parse_claim("Llama 3.2 3B Q4_K_M on Raspberry Pi 5: 1-30 tokens/s", {"date": "2026-11-26"}))
    assert judgement.state == "unclear"
    assert ": possible; but its upper end, 30 tokens/s: 30 tokens/s x 1.807 GB of weights" in judgement.sentence
    assert "= 54.2 GB/s" in judgement.sentence
    assert verdicts("Llama 3.2 3B Q4_K_M on Raspberry Pi 5: 1-4 tokens/s") == {"tokens": "plausible"}
    assert verdicts("Llama 3.2 3B Q4_K_M on Raspberry Pi 5: 20-30 tokens/s") == {"tokens": "impossible"}
