"""Facts about the lines of a choice and of a gate."""

import re

import pytest

from edgemeter.collector.show.choice_and_gate import choice_lines, gate_headline, gate_lines
from tests.fixtures.compared_cases import changed, in_turn
from tests.fixtures.comparison_factory import no_energy
from tests.fixtures.record_factory import make_energy
from tests.fixtures.rows import table_row
from tests.fixtures.side_factory import make_side


@pytest.mark.parametrize(
    ("limits", "of_new", "first", "words"),
    [
        ("slower:5%", {"factor": 1.07}, "gate fails slower:5%", "latency +6.6% (+6.0 to +7.2%), limit slower:5%"),
        ("latency:5%", {"factor": 3.5}, "gate fails latency:5%", "latency 3.49 times as long (3.47 to 3.51), limit latency:5%"),
        ("throughput:5%", {"factor": 1.07}, "gate fails throughput:5%", "throughput -6.2% (-6.7 to -5.7%), limit throughput:5%"),
        ("ap:0.5", {"ap": 0.6}, "gate fails ap:0.5", "AP -2.50 points (-2.51 to -2.49), limit ap:0.5"),
        ("energy:5%", {"energy_factor": 1.2}, "gate fails energy:5%", "energy +20% (+19 to +21%), limit energy:5%"),
        ("memory:5%", {}, "gate passes memory:5%", "memory +0.0%, limit memory:5%"),
        ("ap:0.5", {}, "gate passes ap:0.5", "AP is identical on every input, limit ap:0.5"),
        ("ap:0.5", {"ap": 0.65}, "gate passes ap:0.5", "AP +2.50 points (+2.49 to +2.51), limit ap:0.5"),
    ],
)
def test_a_finding_has_the_change_that_decides_it(limits, of_new, first, words):
    """By how much it is worse, counted as the limit is."""
    comparison = changed(make_side(agent="1"), make_side(agent="2", seed=2, start=100, **of_new), limits)
    lines = list(gate_lines(comparison, comparison.gate))
    assert lines[0] == first
    assert lines[1].endswith(words)


def test_an_inconclusive_gate_names_its_limits_and_what_would_decide_them():
    """How many more runs; or why nothing can be judged."""
    for of_new, words in (
        ({"runs": 3, "spread": 0.1}, r"about \d+ more runs would decide"),
        ({"runs": 1}, r"3 runs give an interval"),
        (no_energy(), "no power sensor here, limit"),
        ({"energy_factor": 1.05, "spread": 0.01}, r"energy \+5\.\d% \(\+4\.\d to \+6\.\d%\), limit"),
    ):
        with table_row(of_new):
            comparison = changed(make_side(agent="1"), make_side(agent="2", seed=2, start=100, **of_new), "energy:5%")
            assert gate_headline(comparison.gate) == "inconclusive, which fails: energy:5%"
            assert re.search(words, list(gate_lines(comparison, comparison.gate))[1])


def test_without_an_interval_a_limit_says_how_many_runs_give_one():
    """How many would decide nothing shows; a gate and a requirement say the same."""
    comparison = changed(make_side(agent="1"), make_side(agent="2", seed=2, start=100, runs=2), "energy:5%")
    assert list(gate_lines(comparison, comparison.gate))[1].endswith(", 3 runs give an interval: measure with --repeats 3, limit energy:5%")
    comparison = in_turn(make_side(agent="1"), make_side(agent="1", seed=2, precision="int8", runs=2), required="p50<=1s")
    assert any(line.endswith("; 3 runs give an interval: measure with --repeats 3") for line in choice_lines(comparison.choice))


def test_no_finding_that_is_printed_contradicts_its_outcome():
    """Near a limit there are as many digits as tell the interval from it."""
    outcomes = set()
    for number in range(60):
        factor = 1.045 + 0.0003 * number
        comparison = changed(
            make_side(agent="1", spread=0.002), make_side(agent="2", seed=2 + number, start=100, factor=factor, spread=0.002), "slower:5%"
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
    """Unlike a latency."""
    comparison = in_turn(
        make_side(agent="1"), make_side(agent="1", seed=2, precision="int8", ap=0.6), required="", cheapest="accuracy_value"
    )
    assert next(choice_lines(comparison.choice)) == "recommended: A, the case of the highest accuracy, 0.625"


def test_a_choice_names_what_is_recommended_and_what_is_similar():
    """With the interval of each requirement; a case whose energy another meter scope saw is undecided, with the reason."""
    base = make_side(agent="1")
    similar = make_side(agent="1", seed=3, precision="fp16")
    slow = make_side(agent="1", seed=4, precision="int8", factor=2, energy_factor=1.5)
    module = make_side(agent="1", seed=5, precision="int4", energy=make_energy(scope="module"))
    comparison = in_turn(base, similar, slow, module, required="p50<=20ms, energy<=80mJ")
    text = "\n".join(choice_lines(comparison.choice))
    for pattern in (
        r"recommended: [AB], the case of the lowest p50, 12\.0 ms ± 3%, that meets p50<=20ms, energy<=80mJ\n",
        r"\nsimilar: [AB], p50: no difference above 3%\n",
        r"\nnot met: C\n  p50<=20ms not met: 24\.0 ms \(9\d\.\d+% 2\d\.\d to 2\d\.\d\)\n",
        r"\ninconclusive: D\n.*\n  energy<=80mJ inconclusive: measured at module, the others at board-input",
    ):
        assert re.search(pattern, text)
