import pytest

from edgemeter.collector.published.row import KINDS, PublishedRow
from edgemeter.collector.published.rules import RULES, evidence_of, not_stated
from tests.fixtures.published_rows import published_row


def test_each_rule_has_a_name_a_requirement_and_a_rationale():
    """Names are unique, and texts short enough for a table."""
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.requirement
        assert 0 < len(rule.rationale) <= 200, rule.name


@pytest.mark.parametrize("figure", KINDS)
def test_a_figure_of_each_kind_is_judged(figure):
    """With companions of each kind, whatever is not stated; each sentence is one, with a rule's name."""
    rows = []
    for name, kind in KINDS.items():
        fields = {"value": 0.5, "unit": next(iter(kind.units)), "model": "Llama 3.2 3B", "device": "Raspberry Pi 5", "conditions": "none"}
        edition = {"source": "A page", "version": "1", "date": "2026-11-20", "address": "https://example.org"}
        rows.append(PublishedRow(figure=name, **fields, **edition))
    row = next(row for row in rows if row.figure == figure)
    for evidence in evidence_of(row, [companion for companion in rows if companion is not row]):
        assert evidence.rule in {rule.name for rule in RULES}
        assert evidence.sentence
        assert "\n" not in evidence.sentence
    assert isinstance(not_stated(row), tuple)


def test_evidence_carries_the_name_of_its_rule():
    """And both sides with their unit."""
    (evidence,) = evidence_of(published_row("tokens", 20.0, "Llama 3.2 3B Q4", "Raspberry Pi AI HAT+ 2"), ())
    assert (evidence.rule, evidence.state, evidence.unit) == ("decode-above-bandwidth", "impossible", "GB/s")


def test_what_is_not_stated_is_named_by_the_kind_of_figure():
    """Prompt and answer of a language model, power mode of a Jetson, scope of a power, items of an accuracy."""
    tokens = not_stated(published_row("tokens", 20.0, "Llama 3.2 3B", "Jetson Orin Nano"))
    assert {"the length of the prompt", "the length of the answer", "the batch", "the power mode", "the precision of the weights"} <= {
        *tokens
    }
    assert "whether decoding is speculative" in tokens
    assert "what the energy or power covers (wall, board, module, rails)" in not_stated(published_row("power", 5.0, "x", "Raspberry Pi 5"))
    accuracy = not_stated(published_row("accuracy", 61.0, "YOLO11n", "Raspberry Pi 5"))
    assert {"the number of items", "the dataset", "the metric"} <= {*accuracy}
    assert "the batch" not in accuracy
    assert "the power mode" not in not_stated(published_row("latency", 5.0, "x", "Raspberry Pi 5"))


def test_a_row_that_states_all_lacks_nothing():
    """A decoding rate with each of its conditions."""
    row = published_row(
        "tokens", 20.0, "Llama 3.2 3B", "Jetson Orin Nano", runtime="llama.cpp", software="b7000", backend="gpu", precision="Q4_K_M",
        batch=1, prompt_tokens=128, output_tokens=128, power_mode="25W", speculative="off", count=100,
    )  # fmt: skip
    assert not_stated(row) == ()
