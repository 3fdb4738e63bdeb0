"""Facts about the sentences of a comparison: one interval each, the one that decides."""

import math
import random
import re

import pytest

from edgemeter.agent.base.decision import decide
from edgemeter.agent.base.evidence import Evidence
from edgemeter.agent.contract.figures import ACCURACY, LATENCY
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.show.sentence import clause, headline, inconclusive_text, joined, outcome_of, sentence
from tests.fixtures.compared_cases import changed, comparisons, in_turn
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.rows import table_row
from tests.fixtures.side_factory import make_side
from tests.fixtures.snapshot import same_as_snapshot

A_CASE = in_turn(make_side(agent="1")).rows[0].case


def on_ratio(value, error=0.02, units=8, better="lower"):
    """Return the decision on a figure that is so many times the reference's, with a standard error of its logarithm."""
    return decide(Evidence(math.log(value), error, units - 1, units, "run"), 0.95, 0.03, better)


def on_points(value, error=0.01):
    """Return the decision on an accuracy that is so much higher."""
    return decide(Evidence(value, error, math.inf, 20, "image"), 0.95, 0.005, "higher", "points")


def test_each_comparison_has_its_sentence():
    """What is better, what is worse, what does not differ, what is open and what would decide it."""
    same_as_snapshot("comparison-sentences", "".join(f"{name}\n    {headline(comparison)}\n" for name, comparison in comparisons()))


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("latency_p50_ms", on_ratio(0.86), "is 14% faster (10 to 18%)"),
        ("latency_p50_ms", on_ratio(1.16), "is 16% slower (11 to 22%)"),
        ("latency_p50_ms", on_ratio(0.43), "is 2.3 times as fast (2.2 to 2.4)"),
        ("latency_p50_ms", on_ratio(2.3), "takes 2.3 times as long (2.2 to 2.4)"),
        ("latency_p50_ms", on_ratio(0.001), "is 1,000 times as fast (954 to 1,048)"),
        ("throughput_per_s", on_ratio(1.2, better="higher"), "has 20% higher throughput (14 to 26%)"),
        ("accuracy_value", on_points(-0.099, 0.02), "is 9.9 AP points less accurate (6.0 to 13.8)"),
        ("energy_gross_mj", on_ratio(0.84), "uses 16% less energy (12 to 20%)"),
        ("energy_gross_mj", on_ratio(2.5), "uses 2.5 times the energy (2.4 to 2.6)"),
        ("steady_missed_ratio", on_points(0.03), "misses 3.0 points more frames (1.0 to 5.0)"),
        ("generation_ttft_p50_ms", on_ratio(0.5), "has 50% lower TTFT (48 to 52%)"),
    ],
)
def test_a_change_is_said_in_the_words_of_its_figure(name, change, text):
    """In per cent, from a factor of two on in times, of accuracies and shares in points."""
    assert joined([clause(name, change, A_CASE)]) == text


def test_what_would_decide_is_named_with_its_option():
    """Runs and pairs are had by `--repeats`; days are not, and more images are other data."""
    for evidence, text in (
        (Evidence(math.log(1.13), 0.06, 2, 3, "run"), "+13%, -13 to +46%; about 5 more runs would decide: measure with --repeats 8"),
        (Evidence(math.log(1.13), 0.06, 2, 3, "pair"), "+13%, -13 to +46%; about 5 more runs would decide: measure with --repeats 8"),
        (Evidence(math.log(1.13), 0.06, 2, 3, "day"), "+13%, -13 to +46%; about 5 more days would decide"),
        (Evidence(math.log(1.13), None, 0, 1, "run"), "+13%, without an interval; 3 runs give an interval: measure with --repeats 3"),
        (Evidence(math.log(1.13), None, 0, 1, "day"), "+13%, without an interval; 3 days give an interval"),
        (Evidence(0.0, 0.2, 9, 10, "run"), "+0%, -36 to +57%; not even 100 more runs would decide"),
    ):
        with table_row(text):
            assert inconclusive_text(LATENCY, decide(evidence, 0.95, 0.03, "lower")) == text
    assert inconclusive_text(ACCURACY, on_points(0.004)) == "+0.4 points, -1.6 to +2.4; more images would narrow it"


def test_no_interval_that_is_printed_contradicts_its_outcome():
    """Whatever the change, its error and the rounding."""
    chance = random.Random(1)  # noqa: S311 - the same decisions every time, no secret
    outcomes = set()
    for _ in range(3000):
        is_ratio = chance.random() < 0.6
        size = chance.choice((0.0, 0.001, 0.03, 0.3, 2.0)) * chance.gauss(0, 1)
        evidence = Evidence(size if is_ratio else size / 10, 10 ** chance.uniform(-5, -1), 5, 6, "run")
        change = decide(evidence, 0.95, 0.03 if is_ratio else 0.005, "lower" if is_ratio else "higher", "ratio" if is_ratio else "points")
        outcomes.add(change.outcome)
        name = LATENCY if is_ratio else ACCURACY
        if change.outcome == "inconclusive":
            text = inconclusive_text(name, change).replace(",", "")
            low, high = map(float, re.findall(r" ([-+][\d.]+) to ([-+][\d.]+)", text)[0])
            limits = (-100 * 0.03 / 1.03, 3) if is_ratio else (-0.5, 0.5)
            assert low <= 0 <= high, change
            assert low < limits[0] or high > limits[1], change
        elif change.outcome != "no difference":
            text = joined([clause(name, change, A_CASE)])
            value, *ends = (float(number) for number in re.findall(r"[\d.]+", text.replace(",", "")))
            assert value > 0, change
            assert not ends or 0 < ends[0] <= value <= ends[1], change
            assert any(word in text for word in ("faster", "fast", "more")) == (change.outcome == "better"), change
    assert outcomes == {"better", "worse", "no difference", "inconclusive"}


def test_of_several_cases_it_is_said_which_differ_from_the_first():
    """And of those that differ alike, in one clause; one is recommended only where no other is similar."""
    base = make_side(agent="1")
    slow = [make_side(agent="1", seed=seed, model=name, factor=1.2) for seed, name in ((2, "b"), (3, "c"))]
    assert headline(in_turn(base, *slow)) == "B and C are slower."
    same = [make_side(agent="1", seed=seed, model=name) for seed, name in ((4, "d"), (5, "e"))]
    assert headline(in_turn(base, *slow, *same)) == "B and C are slower; D and E cannot be told apart from A."
    assert headline(in_turn(base, *slow, *same, required="", cheapest="latency_p50_ms")).endswith("from A.")
    assert headline(in_turn(base, *slow, required="", cheapest="latency_p50_ms")) == "B and C are slower; A is recommended."


def test_what_does_not_compare_has_one_reason():
    """And no interval."""
    runs = make_side(agent="1", seed=2, scenario="offline")
    (row,) = in_turn(make_side(agent="1"), [make_run(precision="int8", ap=None, energy=None, p50_ms=None)]).rows[1:]
    assert sentence(row) == "B cannot be compared: too few queries for a median."
    assert outcome_of(row) == "not compared"
    (row,) = in_turn(make_side(agent="1"), runs).rows[1:]
    assert sentence(row).startswith("AP is identical")


def test_nothing_to_compare_is_said():
    """Without a run, and without another case."""
    assert headline(Comparison("A", ())) == "No run could be compared."
    assert headline(in_turn(make_side(agent="1"))) == "There is nothing to compare the reference with."


def test_a_case_keeps_its_name_where_several_are_compared():
    """A sentence about nothing but an equality would not say of which case."""
    before = [*make_side(agent="1"), *make_side(agent="1", seed=5, start=50, model="other")]
    after = [*make_side(agent="2", seed=3, start=100), *make_side(agent="2", seed=4, start=150, model="other")]
    for row in changed(before, after).rows:
        assert sentence(row, is_alone=False).startswith(f"{row.name}: no difference in latency")
        assert sentence(row).startswith("No difference in latency")


def test_what_keeps_its_limit_is_not_called_inconclusive():
    """Heading, gate and sentence agree; a figure that has no limit is told apart from those that have one."""
    noisy = {"spread": 0.03}
    comparison = changed(make_side(agent="1", **noisy), make_side(agent="2", seed=3, start=100, factor=0.97, **noisy), "slower:5%")
    (row,) = comparison.rows
    assert row.within_limits == {LATENCY}
    assert re.search(r"latency is within the limit, -2% \(-5 to \+1%\); energy, which has no limit, is inconclusive", headline(comparison))
    limited = changed(make_side(agent="1", **noisy), make_side(agent="2", seed=3, start=100, factor=0.97, **noisy), "slower:5%,energy:6%")
    assert outcome_of(limited.rows[0]) == "within the limit"
    assert "inconclusive" not in headline(limited)


def test_a_limit_below_what_matters_is_what_matters():
    """An answer does not say of one change that it is inconclusive and that there is no difference."""
    comparison = changed(make_side(agent="1"), make_side(agent="2", seed=2, start=100, factor=1.005), "slower:0.5%")
    assert (comparison.gate.outcome, comparison.rows[0].decisions[LATENCY].outcome) == ("inconclusive", "inconclusive")


def test_what_a_choice_goes_by_is_decided_once():
    """The change that the sentence says is the one by which cases are similar, in either direction."""
    noisy = {"spread": 0.03}
    base, other = make_side(agent="1", **noisy), make_side(agent="1", seed=5, precision="int8", **noisy)
    third = make_side(agent="1", seed=9, precision="fp16", factor=1.3)
    for sides in ((base, other, third), (other, base, third), (third, other, base)):
        comparison = in_turn(*sides, required="p50<=20ms", cheapest=LATENCY)
        rows = {id(row.case): row for row in comparison.rows}
        best = comparison.choice.recommended.case
        for candidate in comparison.choice.candidates[1:]:
            change = candidate.against_best
            if best is comparison.rows[0].case:
                assert rows[id(candidate.case)].decisions[LATENCY] == change
            elif candidate.case is comparison.rows[0].case:
                mirrored = rows[id(best)].decisions[LATENCY]
                assert (mirrored.confidence, mirrored.high) == (change.confidence, pytest.approx(1 / change.low))
