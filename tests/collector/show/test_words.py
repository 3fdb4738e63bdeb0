"""Test the words of a comparison: its sentence, its choice and gate, and its figures.

Each has one interval, the one that decides.
"""

import math
import random
import re

import pytest

from edgemeter.agent.base.decision import decide
from edgemeter.agent.base.evidence import Evidence, RunValue
from edgemeter.agent.contract.figures import ACCURACY, ENERGY, LATENCY, figure
from edgemeter.collector.compare.case_figure import figure_of_values
from edgemeter.collector.compare.comparison import Comparison
from edgemeter.collector.show.words import (
    change_text,
    change_with_interval,
    choice_lines,
    confidence_text,
    decided_together,
    decisions_text,
    figure_text,
    gate_headline,
    gate_lines,
    headline,
    outcome_of,
    outcome_text,
)
from tests.fixtures.compared_cases import changed, comparisons, in_turn
from tests.fixtures.comparison_factory import make_run, no_energy
from tests.fixtures.record_factory import make_energy
from tests.fixtures.rows import table_row
from tests.fixtures.side_factory import make_side
from tests.fixtures.snapshot import same_as_snapshot


def test_each_comparison_has_its_sentence():
    """The sentence says which figures are better, worse, equal or open.

    It also says how many runs would decide an open one.
    """
    same_as_snapshot(
        "comparison-sentences",
        "".join(f"{name}\n    {headline(comparison)}\n" for name, comparison in comparisons()),
    )


def test_several_cases_are_counted_by_their_outcome():
    """Cases with letters are named; one is recommended only where no other is similar."""
    base = make_side(agent="1")
    slow = [
        make_side(agent="1", seed=seed, model=name, factor=1.2)
        for seed, name in ((2, "b"), (3, "c"))
    ]
    assert headline(in_turn(base, *slow)) == "2 cases compared: B and C worse."
    same = [make_side(agent="1", seed=seed, model=name) for seed, name in ((4, "d"), (5, "e"))]
    outcomes_text = "4 cases compared: B and C worse, D and E no difference"
    assert (
        headline(in_turn(base, *slow, *same, required="", cheapest="latency_p50_ms"))
        == f"{outcomes_text}."
    )
    assert headline(in_turn(base, *slow, required="", cheapest="latency_p50_ms")).endswith(
        "worse; A is recommended."
    )


def test_what_does_not_compare_has_one_reason():
    """A figure that does not compare has no interval."""
    runs = make_side(agent="1", seed=2, scenario="offline")
    (row,) = in_turn(
        make_side(agent="1"), [make_run(precision="int8", ap=None, energy=None, p50_ms=None)]
    ).rows[1:]
    assert decisions_text(row) == "no figure compares (too few queries for a median)"
    assert outcome_of(row) == "not compared"
    (row,) = in_turn(make_side(agent="1"), runs).rows[1:]
    assert decisions_text(row).startswith("AP is identical")


def test_nothing_to_compare_is_said():
    """The text exists without a run, and without another case."""
    assert headline(Comparison("A", ())) == "No run could be compared."
    assert (
        headline(in_turn(make_side(agent="1"))) == "There is nothing to compare the reference with."
    )


def test_what_keeps_its_limit_is_not_called_inconclusive():
    """Heading, gate and sentence agree.

    A figure without a limit is reported apart from those with one.
    """
    noisy = {"spread": 0.03}
    comparison = changed(
        make_side(agent="1", **noisy),
        make_side(agent="2", seed=3, start=100, factor=0.97, **noisy),
        "slower:5%",
    )
    (row,) = comparison.rows
    assert row.within_limits == {LATENCY}
    assert re.search(
        r"latency is within the limit, -2% \(-5 to \+1%\); .*energy is inconclusive",
        headline(comparison),
    )
    limited = changed(
        make_side(agent="1", **noisy),
        make_side(agent="2", seed=3, start=100, factor=0.97, **noisy),
        "slower:5%,energy:6%",
    )
    assert outcome_of(limited.rows[0]) == "within the limit"
    assert "inconclusive" not in headline(limited)


def test_a_limit_below_what_matters_is_what_matters():
    """No answer calls one change both inconclusive and no difference."""
    comparison = changed(
        make_side(agent="1"), make_side(agent="2", seed=2, start=100, factor=1.005), "slower:0.5%"
    )
    assert (comparison.gate.outcome, comparison.rows[0].decisions[LATENCY].outcome) == (
        "inconclusive",
        "inconclusive",
    )


def test_what_a_choice_goes_by_is_decided_once():
    """The change in the sentence is the one by which cases are similar, either way."""
    noisy = {"spread": 0.03}
    base, other = (
        make_side(agent="1", **noisy),
        make_side(agent="1", seed=5, precision="int8", **noisy),
    )
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
                assert (mirrored.confidence, mirrored.high) == (
                    change.confidence,
                    pytest.approx(1 / change.low),
                )


@pytest.mark.parametrize(
    ("limits", "of_new", "first", "words"),
    [
        (
            "slower:5%",
            {"factor": 1.07},
            "gate fails slower:5%",
            "latency +6.6% (+6.0 to +7.2%), limit slower:5%",
        ),
        (
            "latency:5%",
            {"factor": 3.5},
            "gate fails latency:5%",
            "latency 3.49 times as long (3.47 to 3.51), limit latency:5%",
        ),
        (
            "throughput:5%",
            {"factor": 1.07},
            "gate fails throughput:5%",
            "throughput -6.2% (-6.7 to -5.7%), limit throughput:5%",
        ),
        (
            "ap:0.5",
            {"ap": 0.6},
            "gate fails ap:0.5",
            "AP -2.50 points (-2.51 to -2.49), limit ap:0.5",
        ),
        (
            "energy:5%",
            {"energy_factor": 1.2},
            "gate fails energy:5%",
            "energy +20% (+19 to +21%), limit energy:5%",
        ),
        ("memory:5%", {}, "gate passes memory:5%", "memory +0.0%, limit memory:5%"),
        ("ap:0.5", {}, "gate passes ap:0.5", "AP is identical on every input, limit ap:0.5"),
        (
            "ap:0.5",
            {"ap": 0.65},
            "gate passes ap:0.5",
            "AP +2.50 points (+2.49 to +2.51), limit ap:0.5",
        ),
    ],
)
def test_a_finding_has_the_change_that_decides_it(limits, of_new, first, words):
    """The finding says by how much the figure is worse, counted as the limit is."""
    comparison = changed(
        make_side(agent="1"), make_side(agent="2", seed=2, start=100, **of_new), limits
    )
    lines = list(gate_lines(comparison, comparison.gate))
    assert lines[0] == first
    assert lines[1].endswith(words)


def test_an_inconclusive_gate_names_its_limits_and_what_would_decide_them():
    """The gate says how many more runs would decide, or why nothing can be judged."""
    for of_new, words in (
        ({"runs": 3, "spread": 0.1}, r"about \d+ more runs would decide"),
        ({"runs": 1}, r"3 runs give an interval"),
        (no_energy(), "no power sensor here, limit"),
        (
            {"energy_factor": 1.05, "spread": 0.01},
            r"energy \+5\.\d% \(\+4\.\d to \+6\.\d%\), limit",
        ),
    ):
        with table_row(of_new):
            comparison = changed(
                make_side(agent="1"), make_side(agent="2", seed=2, start=100, **of_new), "energy:5%"
            )
            assert gate_headline(comparison.gate) == "inconclusive, which fails: energy:5%"
            assert re.search(words, list(gate_lines(comparison, comparison.gate))[1])


def test_without_an_interval_a_limit_says_how_many_runs_give_one():
    """Nothing shows how many runs would decide; a gate and a requirement agree."""
    comparison = changed(
        make_side(agent="1"), make_side(agent="2", seed=2, start=100, runs=2), "energy:5%"
    )
    assert list(gate_lines(comparison, comparison.gate))[1].endswith(
        ", 3 runs give an interval: measure with --repeats 3, limit energy:5%"
    )
    comparison = in_turn(
        make_side(agent="1"),
        make_side(agent="1", seed=2, precision="int8", runs=2),
        required="p50<=1s",
    )
    assert any(
        line.endswith("; 3 runs give an interval: measure with --repeats 3")
        for line in choice_lines(comparison.choice)
    )


def test_no_finding_that_is_printed_contradicts_its_outcome():
    """Near a limit there are enough digits to distinguish the interval from it."""
    outcomes = set()
    for number in range(60):
        factor = 1.045 + 0.0003 * number
        comparison = changed(
            make_side(agent="1", spread=0.002),
            make_side(agent="2", seed=2 + number, start=100, factor=factor, spread=0.002),
            "slower:5%",
        )
        (finding,) = comparison.gate.findings
        line = list(gate_lines(comparison, comparison.gate))[1]
        outcomes.add(finding.outcome)
        if finding.outcome == "fail":
            assert float(re.search(r"\(\+([\d.]+) to", line)[1]) > 5, line
        elif finding.outcome == "inconclusive":
            assert float(re.search(r" to \+([\d.]+)%\)", line)[1]) > 5, line
    assert outcomes == {"pass", "fail", "inconclusive"}


def test_a_recommended_accuracy_is_the_highest():
    """A recommended latency, in contrast, is the lowest."""
    comparison = in_turn(
        make_side(agent="1"),
        make_side(agent="1", seed=2, precision="int8", ap=0.6),
        required="",
        cheapest="accuracy_value",
    )
    assert (
        next(choice_lines(comparison.choice)) == "recommended: A, with the highest accuracy, 0.625"
    )


def test_a_choice_names_what_is_recommended_and_what_is_similar():
    """Each requirement has its interval.

    A case whose energy was read at another meter scope is undecided, with the reason.
    """
    base = make_side(agent="1")
    similar = make_side(agent="1", seed=3, precision="fp16")
    slow = make_side(agent="1", seed=4, precision="int8", factor=2, energy_factor=1.5)
    module = make_side(agent="1", seed=5, precision="int4", energy=make_energy(scope="module"))
    comparison = in_turn(base, similar, slow, module, required="p50<=20ms, energy<=80mJ")
    text = "\n".join(choice_lines(comparison.choice))
    for pattern in (
        (
            r"recommended: [AB], with the lowest p50, 12\.0 ms ± 3%, of the cases that meet "
            r"p50<=20ms, energy<=80mJ\n"
        ),
        r"\nsimilar: [AB], p50: no difference above 3%\n",
        r"\nnot met: C\n  p50<=20ms not met: 24\.0 ms \(9\d\.\d+% 2\d\.\d to 2\d\.\d\)\n",
        (
            r"\ninconclusive: D\n.*\n  energy<=80mJ inconclusive: measured at module, the others "
            r"at board-input"
        ),
    ):
        assert re.search(pattern, text)


def values(*numbers):
    return tuple(RunValue(number, "pi-1", 0) for number in numbers)


def ratio(value, error, units=5):
    """Return the decision on a latency that is so many times the reference's.

    It has a standard error of its logarithm.
    """
    return decide(Evidence(math.log(value), error, units - 1, units, "run"), 0.95, 0.03, "lower")


def over(unit, value, error):
    """Return the decision on a latency over three units, or over one without an interval."""
    units = 1 if error is None else 3
    return decide(Evidence(math.log(value), error, units - 1, units, unit), 0.95, 0.03, "lower")


@pytest.mark.parametrize(
    ("name", "numbers", "unit", "text"),
    [
        ("latency_p50_ms", (138.0, 140.0, 142.0), "ms", "140 ms ± 5%"),
        ("latency_p50_ms", (138.0, 140.0), "ms", "139 ms"),
        ("latency_p50_ms", (100.0, 140.0, 300.0), "", "161 (40 to 653)"),
    ],
)
def test_a_figure_has_its_interval_from_three_runs_on(name, numbers, unit, text):
    """A wide interval is shown by its ends."""
    assert figure_text(figure(name), figure_of_values(values(*numbers)), unit) == text


def test_an_accuracy_has_its_bounds():
    """A figure that was not measured has no value."""
    scored = figure_of_values(values(0.40, 0.41, 0.42), "points")
    assert figure_text(figure("accuracy_value"), scored) == "0.410 (0.385 to 0.435)"
    assert figure_text(figure("accuracy_value"), None) == "-"


@pytest.mark.parametrize(
    ("decision", "text", "interval", "outcome"),
    [
        (ratio(0.86, 0.02), "-14%", "-19 to -9%", "better"),
        (ratio(1.0, 0.001), "+0.0%", "-0.3 to +0.3%", "no difference above 3%"),
        (
            ratio(1.02, 0.02),
            "+2%",
            "-4 to +8%",
            "inconclusive; about 37 more runs would decide: measure with --repeats 42",
        ),
        (ratio(0.25, 0.02), "4.0 times as fast", "3.8 to 4.2", "better"),
        (ratio(0.0001, 0.02), "10,000 times as fast", "9,460 to 10,571", "better"),
        (ratio(4.88, 0.02), "4.9 times as long", "4.6 to 5.2", "worse"),
        (ratio(1.96, 0.02), "+96%", "+85 to +107%", "worse"),
        (
            ratio(1.1, None, 1),
            "+10%",
            "",
            "inconclusive; 3 runs give an interval: measure with --repeats 3",
        ),
        (
            decide(Evidence(-0.099, 0.02, 1000, 50, "image"), 0.95, 0.005, "higher", "points"),
            "-9.9 points",
            "-13.8 to -6.0",
            "worse",
        ),
        (
            decide(Evidence(-0.01, 0.02, 1000, 50, "image"), 0.95, 0.005, "higher", "points"),
            "-1.0 points",
            "-4.9 to +2.9",
            "inconclusive; more images would narrow it",
        ),
        (
            ratio(1.01, 0.3),
            "+1%",
            "-56 to +132%",
            "inconclusive; not even 100 more runs would decide",
        ),
        (
            over("day", 1.13, 0.06),
            "+13%",
            "-13 to +46%",
            "inconclusive; about 5 more days would decide",
        ),
        (
            over("pair", 1.13, 0.06),
            "+13%",
            "-13 to +46%",
            "inconclusive; about 5 more runs would decide: measure with --repeats 8",
        ),
        (over("day", 1.13, None), "+13%", "", "inconclusive; 3 days give an interval"),
    ],
)
def test_a_change_has_the_interval_that_decides_it_and_its_outcome(
    decision, text, interval, outcome
):
    """A change is in per cent, and in times from a factor of two on.

    An undecided one says how many more runs would decide it.
    """
    with_interval = f"{text}{f' ({interval})' if interval else ''}"
    name = LATENCY if decision.scale == "ratio" else ACCURACY
    assert (
        change_text(name, decision),
        change_with_interval(name, decision),
        outcome_text(decision),
    ) == (text, with_interval, outcome)


def test_only_a_latency_is_so_many_times_as_long_or_as_fast():
    """Other figures are so many times the other, or so many per cent lower."""
    assert change_with_interval(ENERGY, ratio(4.88, 0.02)) == "4.9 times (4.6 to 5.2)"
    assert change_with_interval(ENERGY, ratio(0.25, 0.02)) == "-75% (-76 to -74%)"
    assert change_with_interval(ENERGY, ratio(0.0001, 0.02)) == "-99.99%"


def test_no_interval_that_is_printed_contradicts_its_outcome():
    """Near no change and near the margin enough digits show the side of a bound."""
    chance = random.Random(1)  # noqa: S311 - the same decisions every time, no secret
    for _ in range(2000):
        is_ratio = chance.random() < 0.6
        size = chance.choice((0.001, 0.03, 0.3)) * chance.gauss(0, 1) * (1 if is_ratio else 0.1)
        scale, margin = ("ratio", 0.03) if is_ratio else ("points", 0.005)
        change = decide(
            Evidence(size, 10 ** chance.uniform(-4, -1.5), 5, 6, "run"),
            0.95,
            margin,
            "lower",
            scale,
        )
        text = change_with_interval(LATENCY if is_ratio else ACCURACY, change)
        ends = re.search(r"\(([-+\d.]+) to ([-+\d.]+)", text)
        if ends is None:
            # Both ends are written as the value is.
            assert change.high - change.low < 0.01
            continue
        assert len({len(end.partition(".")[2]) for end in ends.groups()}) == 1, text
        low, high = map(float, ends.groups())
        none = 1 if "times" in text else 0
        within = (-100 * margin / (1 + margin * is_ratio), 100 * margin)
        if change.outcome in ("better", "worse"):
            is_up = (change.outcome == "worse") or none == 1
            assert (low >= none) if is_up else (high <= none), change
        elif change.outcome == "inconclusive":
            assert low <= none <= high, change
        else:
            assert within[0] - 1e-9 < low <= high < within[1] + 1e-9, change


def test_a_confidence_that_is_not_95_is_written():
    """A confidence near 100% is not written as 100%."""
    assert [
        confidence_text(*pair) for pair in ((0.975,), (0.95, 1 - 0.05 / 3), (1 - 0.05 / 2000,))
    ] == ["97.5%", "95% to 98.3%", "99.997%"]
    alone, of_two = (
        ratio(0.9, 0.02),
        decide(Evidence(-0.1, 0.02, 4, 5, "run"), 0.975, 0.03, "lower"),
    )
    assert decided_together([alone]) == ""
    sure = (
        "the intervals of changes have 95% to 97.5% confidence, so that all "
        "decisions together have 95%"
    )
    assert decided_together([alone, of_two, of_two]) == sure
