"""Facts about the sentences of a comparison: one interval each, the one that decides."""

import re

import pytest

from edgemeter.agent.contract.figures import LATENCY
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.show.sentence import decisions_text, headline, outcome_of
from tests.fixtures.compared_cases import changed, comparisons, in_turn
from tests.fixtures.comparison_factory import make_run
from tests.fixtures.side_factory import make_side
from tests.fixtures.snapshot import same_as_snapshot


def test_each_comparison_has_its_sentence():
    """What is better, what is worse, what does not differ, what is open and what would decide it."""
    same_as_snapshot("comparison-sentences", "".join(f"{name}\n    {headline(comparison)}\n" for name, comparison in comparisons()))


def test_several_cases_are_counted_by_their_outcome():
    """Those with letters are named; one is recommended only where no other is similar."""
    base = make_side(agent="1")
    slow = [make_side(agent="1", seed=seed, model=name, factor=1.2) for seed, name in ((2, "b"), (3, "c"))]
    assert headline(in_turn(base, *slow)) == "2 cases compared: B and C worse."
    same = [make_side(agent="1", seed=seed, model=name) for seed, name in ((4, "d"), (5, "e"))]
    outcomes_text = "4 cases compared: B and C worse, D and E no difference"
    assert headline(in_turn(base, *slow, *same, required="", cheapest="latency_p50_ms")) == f"{outcomes_text}."
    assert headline(in_turn(base, *slow, required="", cheapest="latency_p50_ms")).endswith("worse; A is recommended.")


def test_what_does_not_compare_has_one_reason():
    """And no interval."""
    runs = make_side(agent="1", seed=2, scenario="offline")
    (row,) = in_turn(make_side(agent="1"), [make_run(precision="int8", ap=None, energy=None, p50_ms=None)]).rows[1:]
    assert decisions_text(row) == "no figure compares (too few queries for a median)"
    assert outcome_of(row) == "not compared"
    (row,) = in_turn(make_side(agent="1"), runs).rows[1:]
    assert decisions_text(row).startswith("AP is identical")


def test_nothing_to_compare_is_said():
    """Without a run, and without another case."""
    assert headline(Comparison("A", ())) == "No run could be compared."
    assert headline(in_turn(make_side(agent="1"))) == "There is nothing to compare the reference with."


def test_what_keeps_its_limit_is_not_called_inconclusive():
    """Heading, gate and sentence agree; a figure that has no limit is told apart from those that have one."""
    noisy = {"spread": 0.03}
    comparison = changed(make_side(agent="1", **noisy), make_side(agent="2", seed=3, start=100, factor=0.97, **noisy), "slower:5%")
    (row,) = comparison.rows
    assert row.within_limits == {LATENCY}
    assert re.search(r"latency is within the limit, -2% \(-5 to \+1%\); .*energy is inconclusive", headline(comparison))
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
